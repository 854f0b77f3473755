"""In verl's rollout workers: episodes of our agents, and the training rows made of them.

`loop` runs an episode, `policy` is verl's server as a policy, `training_rows` makes verl's rows of
contexts, and `broker`, `registry`, `leases` and `bases` share memories between workers.
"""

"""Policies: what continues tokens or messages, without torch: servers, caches and scripts.

`client` and `http` call an OpenAI-compatible server, `served` makes a policy of it, and `scripted`
is a policy for tests. The samplers of the embedded engine are in `sampler/`.
"""

"""Rewards: what a finished episode earns.

`base` is the protocol, `answers` pays for right answers, `memory_delta` for better memories,
`reading` for how a text was read; `function` makes a reward of a user's own function.
"""

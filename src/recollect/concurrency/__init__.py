"""Coroutines: many at once (`many`), stopped from outside (`stop`), in time (`deadlines`).

Knows nothing of what they do.
"""

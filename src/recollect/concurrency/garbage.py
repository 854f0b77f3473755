"""How often Python looks for objects that hold each other, which nothing else frees."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

RARELY = (50_000, 20, 20)
"""New objects until the collector looks, and how often it looks at older ones, as gc has it."""


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Let the collector look rarely: thousands of an episode's objects live, and few in rings.

    It would take a sixth of what agents and chats need in a rollout (benchmarks/agent_turns.py).
    """
    before = gc.get_threshold()
    if not 0 < before[0] < RARELY[0]:  # it looks as rarely already, or never
        yield
        return
    gc.set_threshold(*RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)

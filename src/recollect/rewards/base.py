"""What a reward is: a function of a finished episode that returns a Score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from recollect.memory.base import Memory
from recollect.types import Episode


@dataclass(frozen=True)
class Score:
    """An episode's reward, its named parts, and optionally one reward per context."""

    reward: float
    parts: dict[str, float] = field(default_factory=dict)
    contexts: Sequence[float | None] = ()
    """Either empty or one entry per context; None takes the episode's reward."""
    answers: Sequence[float] = ()
    """One per question: how well it was answered, without any bonus."""
    steps: Sequence[dict[str, float]] = ()
    """Either empty or one entry per context: named rewards for that step alone."""


class Reward(Protocol):
    """Score a finished episode; the memory is still open."""

    async def __call__(self, episode: Episode, memory: Memory) -> Score: ...

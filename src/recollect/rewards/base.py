"""What a reward is: a function of a finished episode that returns a Score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

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

    def __post_init__(self) -> None:
        for name in ("contexts", "answers", "steps"):
            given: Any = getattr(self, name)
            if not isinstance(given, Sized):
                raise TypeError(f"{name} is {given!r:.80}: leave it out, or write a list")
        if odd := [one for one in (self.parts, *self.steps) if not isinstance(one, Mapping)]:
            raise TypeError(f"{odd[0]!r:.80} is no dict of named numbers")


@runtime_checkable
class Reward(Protocol):
    """Score a finished episode; the memory is still open.

    A reward is a frozen dataclass: its fields are its settings. It may have two more methods, which
    `recollect.agents.base` describes: `check(resources)` refuses other parts of the run, and
    `bind(resources)` returns a copy that holds what no file can, such as a model that reads.
    """

    async def __call__(self, episode: Episode, memory: Memory) -> Score: ...


@runtime_checkable
class BoundPerBatch(Protocol):
    """A reward that may have to be bound anew for every batch."""

    @property
    def per_batch(self) -> bool:
        """Whether what it is bound to changes with the weights that learn."""


def is_per_batch(reward: Reward) -> bool:
    """Tell whether a reward must be bound anew for every batch."""
    return isinstance(reward, BoundPerBatch) and reward.per_batch


@dataclass(frozen=True)
class NoReward:
    """Measures nothing: for a trial, or where a reward would have to ask a model."""

    async def __call__(self, episode: Episode, memory: Memory) -> Score:
        """Give nothing."""
        return Score(0.0)

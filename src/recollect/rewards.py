"""Rewards: what an episode earned, computed once, before it is expanded into samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from recollect import metrics
from recollect.errors import UserError
from recollect.memory.base import Memory
from recollect.types import Episode


@dataclass(frozen=True)
class Score:
    """An episode's reward, its named parts, and optionally one reward per context."""

    reward: float
    parts: dict[str, float] = field(default_factory=dict)
    contexts: Sequence[float | None] = ()
    """Either empty or one entry per context; None takes the episode's reward."""


class Reward(Protocol):
    """Score a finished episode; the memory is still open."""

    async def __call__(self, episode: Episode, memory: Memory) -> Score: ...


@dataclass(frozen=True)
class AnswerReward:
    """The mean over the questions of how well each answer matches.

    A context that answers one question earns that question's score; all others earn the mean.
    """

    score: Callable[[str, tuple[str, ...]], float] = metrics.boxed_exact_match

    async def __call__(self, episode: Episode, memory: Memory) -> Score:
        """Score every answer against its question's accepted answers."""
        if not episode.task.questions:
            raise UserError(
                f"task {episode.task.id!r} has no questions, so nothing in it can be rewarded",
                "give every task at least one question, or leave the task out",
            )
        scores = [
            self.score(answer, question.answers)
            for answer, question in zip(episode.answers, episode.task.questions, strict=True)
        ]
        mean = sum(scores) / len(scores)
        own = [None if c.question is None else scores[c.question] for c in episode.contexts]
        return Score(mean, {"answer": mean}, own)

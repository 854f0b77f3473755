"""Validation: how well an agent answers held-out tasks, with n, failures and an interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from recollect import metrics
from recollect.types import Episode


@dataclass(frozen=True)
class Accuracy:
    """A mean score over tasks, and its 95% interval."""

    n: int
    """Episodes that have a result, failed ones included."""
    failed: int
    mean: float
    low: float
    high: float
    unmeasured: int = 0
    """Episodes without a result, because a judge, a reader or another measurement failed. They are
    in no mean."""


def accuracy(groups: Sequence[Sequence[Episode]], score: str = "answer") -> Accuracy:
    """Average a score over the episodes of every task; a failed episode counts as wrong."""
    return _summary(groups, [[_part(e, score) for e in group] for group in groups])


def by_category(groups: Sequence[Sequence[Episode]]) -> dict[str, Accuracy]:
    """Average by the questions' category, in the order of their names; those without have none."""
    scores: dict[str, list[list[float]]] = {}
    asked: dict[str, list[Sequence[Episode]]] = {}
    for group in groups:
        task = group[0].task
        for category in {question.category for question in task.questions} - {""}:
            own = [i for i, q in enumerate(task.questions) if q.category == category]
            scores.setdefault(category, []).append([_score(e, own) for e in group])
            asked.setdefault(category, []).append(group)
    return {name: _summary(asked[name], scores[name]) for name in sorted(scores)}


def _part(episode: Episode, score: str) -> float:
    return episode.scores[score] if episode.ok else 0.0


def _score(episode: Episode, questions: Sequence[int]) -> float:
    """Score some questions of an episode; all alike if its reward does not tell them apart."""
    if not episode.ok:
        return 0.0
    if not episode.answer_scores:
        return episode.scores["answer"]
    return sum(episode.answer_scores[i] for i in questions) / len(questions)


def _summary(groups: Sequence[Sequence[Episode]], scores: Sequence[Sequence[float]]) -> Accuracy:
    """Summarise one score per episode; without any result there is no mean."""
    kept = [
        [score for episode, score in zip(*own, strict=True) if episode.measured]
        for own in zip(groups, scores, strict=True)
    ]
    scores = [own for own in kept if own]
    episodes = [episode for group in groups for episode in group]
    failed = sum(episode.measured and not episode.ok for episode in episodes)
    unmeasured = sum(not episode.measured for episode in episodes)
    flat = [s for own in scores for s in own]
    if not flat:
        return Accuracy(0, failed, math.nan, math.nan, math.nan, unmeasured)
    if all(len(own) == 1 for own in scores) and set(flat) <= {0.0, 1.0}:
        low, high = metrics.wilson(sum(flat), len(flat))
    else:
        low, high = metrics.bootstrap_interval(scores)
    return Accuracy(len(flat), failed, sum(flat) / len(flat), low, high, unmeasured)

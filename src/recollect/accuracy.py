"""Validation: how well an agent answers held-out tasks, with n, failures and an interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect import metrics
from recollect.errors import UserError
from recollect.metrics.statistics import Clusters
from recollect.types import Episode

COUNTS = ("n", "failed", "unmeasured")
ANSWERED = ("before", "panel", "panel/before")
"""Named scores of answers, which are shares. Any other may be a count that happens to be 0 or 1."""


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


def stored_accuracy(row: Mapping[str, Any]) -> Accuracy:
    """Return the accuracy in a row of a run's metrics."""
    names = ("val/n", "val/failed", "val/accuracy", "val/low", "val/high")
    if missing := [name for name in names if name not in row]:
        raise UserError(
            f"metrics.jsonl is damaged: step {row.get('step')} lacks {', '.join(missing)}",
            "restore it from a copy",
        )
    # JSON has no NaN: the mean of nothing is stored as null.
    mean, low, high = (math.nan if row[name] is None else row[name] for name in names[2:])
    n, failed, unmeasured = (int(row.get(f"val/{name}") or 0) for name in COUNTS)
    return Accuracy(n, failed, mean, low, high, unmeasured)


def accuracy(groups: Sequence[Sequence[Episode]], score: str = "answer") -> Accuracy:
    """Average a score over the episodes of every task; a failed episode counts as wrong."""
    return _summary([(e, _part(e, score)) for group in groups for e in group])


def by_category(groups: Sequence[Sequence[Episode]]) -> dict[str, Accuracy]:
    """Average by the questions' category, in the order of names, where questions have one."""
    found: dict[str, list[tuple[Episode, float]]] = {}
    for group in groups:
        task = group[0].task
        for category in {question.category for question in task.questions} - {""}:
            own = [i for i, q in enumerate(task.questions) if q.category == category]
            found.setdefault(category, []).extend((e, _score(e, own)) for e in group)
    return {name: _summary(found[name]) for name in sorted(found)}


def rewards(groups: Sequence[Sequence[Episode]]) -> Accuracy:
    """Average the reward; a failed episode has the lowest one there was, at most 0."""
    found = [e for group in groups for e in group]
    floor = min([0.0, *(e.reward or 0.0 for e in found if e.ok)])
    earned = [(e, (e.reward or 0.0) if e.ok else floor) for e in found]
    return _summary(earned, metrics.mean_interval)


def parts(groups: Sequence[Sequence[Episode]]) -> dict[str, Accuracy]:
    """Average every named score but the answers', over the episodes that ended and have it."""
    found = [e for group in groups for e in group]
    ended = [e for e in found if e.ok]
    names = dict.fromkeys(name for e in ended for name in e.scores if name != "answer")
    return {
        name: _summary(
            [(e, e.scores[name]) for e in ended if name in e.scores],
            metrics.score_interval if name in ANSWERED else metrics.mean_interval,
        )
        for name in names
    }


def _part(episode: Episode, score: str) -> float:
    return episode.scores[score] if episode.ok else 0.0


def _score(episode: Episode, questions: Sequence[int]) -> float:
    """Score some questions of an episode; all alike if its reward does not tell them apart."""
    if not episode.ok:
        return 0.0
    if not episode.answer_scores:
        return episode.scores["answer"]
    return math.fsum(episode.answer_scores[i] for i in questions) / len(questions)


def _summary(
    found: Sequence[tuple[Episode, float]],
    interval: Callable[[Clusters], metrics.Interval] = metrics.score_interval,
) -> Accuracy:
    """Average over episodes; those of one task or conversation are no independent draws.

    Without any result there is no mean.
    """
    measured = [(e, score) for e, score in found if e.measured]
    failed = sum(not e.ok for e, _ in measured)
    missing = len(found) - len(measured)
    if not measured:
        return Accuracy(0, failed, math.nan, math.nan, math.nan, missing)
    named = ((e.task.cluster, e.task.item, score) for e, score in measured)
    result = interval(metrics.cluster_scores(named))
    return Accuracy(len(measured), failed, result.mean, result.low, result.high, missing)

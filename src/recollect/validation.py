"""Validation: how well an agent answers held-out tasks, with n, failures and an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect import metrics
from recollect.types import Episode


@dataclass(frozen=True)
class Accuracy:
    """A mean score over tasks, and its 95% interval."""

    n: int
    """Episodes, failed ones included."""
    failed: int
    mean: float
    low: float
    high: float


def accuracy(groups: Sequence[Sequence[Episode]], score: str = "answer") -> Accuracy:
    """Average a score over the episodes of every task; a failed episode counts as wrong."""
    scores = [[e.scores[score] if e.ok else 0.0 for e in group] for group in groups]
    flat = [s for own in scores for s in own]
    failed = sum(not e.ok for group in groups for e in group)
    if all(len(own) == 1 for own in scores) and set(flat) <= {0.0, 1.0}:
        low, high = metrics.wilson(sum(flat), len(flat))
    else:
        low, high = metrics.bootstrap_interval(scores)
    return Accuracy(len(flat), failed, sum(flat) / len(flat), low, high)

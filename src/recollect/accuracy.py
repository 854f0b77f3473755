"""Validation: how well an agent answers held-out tasks, with n, failures and an interval."""

from __future__ import annotations

from collections import Counter
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
    return _summary(scores, sum(not e.ok for group in groups for e in group))


def by_category(groups: Sequence[Sequence[Episode]]) -> dict[str, Accuracy]:
    """Average by the questions' category, in the order of their names; those without have none."""
    scores: dict[str, list[list[float]]] = {}
    failed: Counter[str] = Counter()
    for group in groups:
        task = group[0].task
        for category in {question.category for question in task.questions} - {""}:
            own = [i for i, q in enumerate(task.questions) if q.category == category]
            scores.setdefault(category, []).append([_score(e, own) for e in group])
            failed[category] += sum(not e.ok for e in group)
    return {name: _summary(scores[name], failed[name]) for name in sorted(scores)}


def _score(episode: Episode, questions: Sequence[int]) -> float:
    """Score some questions of an episode; all alike if its reward does not tell them apart."""
    if not episode.ok:
        return 0.0
    if not episode.answer_scores:
        return episode.scores["answer"]
    return sum(episode.answer_scores[i] for i in questions) / len(questions)


def _summary(scores: Sequence[Sequence[float]], failed: int) -> Accuracy:
    flat = [s for own in scores for s in own]
    if all(len(own) == 1 for own in scores) and set(flat) <= {0.0, 1.0}:
        low, high = metrics.wilson(sum(flat), len(flat))
    else:
        low, high = metrics.bootstrap_interval(scores)
    return Accuracy(len(flat), failed, sum(flat) / len(flat), low, high)

"""From scored answers to results: means with intervals, paired comparisons.

Pure functions over `Scored` answers; knows nothing of models or files. Sums are exact, so the order
in which episodes ended changes no digit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from math import fsum
from statistics import stdev

from recollect.evaluation.results import Comparison, Estimate
from recollect.evaluation.scoring import Scored
from recollect.metrics import cluster_scores, mean_interval, paired_p_value, share_interval


def score(answers: Sequence[Scored], metric: int) -> Estimate:
    """Average one metric over answers, with an interval over their clusters."""
    named = ((a.cluster, a.unit, a.scores[metric]) for a in answers)
    found = share_interval(cluster_scores(named))
    return Estimate(
        found.mean,
        found.low,
        found.high,
        len(answers),
        sum(answer.failed for answer in answers),
        len({answer.item for answer in answers}),
        "wilson" if found.independent else "clusters",
        found.clusters,
    )


def items(answers: Iterable[Scored]) -> dict[str, str]:
    """Name the task that all its copies are, by the hash of what is read and asked."""
    found: dict[str, str] = {}
    for answer in answers:
        if answer.text:
            found[answer.text] = min(answer.item, found.get(answer.text, answer.item))
    return found


def answerable(answers: Sequence[Scored]) -> list[Scored]:
    """Leave out the questions that giving up answers, unless there are no others.

    They have their own line by category: who always gives up is right in all of them.
    """
    return [answer for answer in answers if not answer.unanswerable] or list(answers)


def by_seed(answers: Iterable[Scored], metric: int) -> tuple[dict[str, float], float | None]:
    """Return a metric's mean for every seed, and their standard deviation if there are several."""
    values: dict[int, list[float]] = defaultdict(list)
    for answer in answers:
        values[answer.seed].append(answer.scores[metric])
    means = {str(seed): fsum(v) / len(v) for seed, v in sorted(values.items())}
    return means, stdev(means.values()) if len(means) > 1 else None


def by_axis(answers: Iterable[Scored], metric: int) -> dict[str, dict[str, Estimate]]:
    """Average along every axis that parts the answers."""
    parts: dict[str, dict[str, list[Scored]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers:
        for axis, value in answer.axes:
            parts[axis][value].append(answer)
    return {
        axis: {value: score(own, metric) for value, own in sorted(values.items())}
        for axis, values in sorted(parts.items())
    }


def compare(
    answers: Mapping[str, Sequence[Scored]], task: str, metric: int, name: str
) -> list[Comparison]:
    """Compare every two agents on the tasks that both were given, question by question.

    The difference, its interval and the p-value are of the same answers, by clusters.
    """
    scores = {agent: {a.key: a for a in own} for agent, own in answers.items()}
    found: list[Comparison] = []
    for first, second in combinations(scores, 2):
        shared = [(a, scores[second][k]) for k, a in scores[first].items() if k in scores[second]]
        if not shared:
            continue
        clusters = cluster_scores(
            (a.cluster, a.unit, a.scores[metric] - b.scores[metric]) for a, b in shared
        )
        mean = mean_interval(clusters, limit=1.0)
        p = paired_p_value(clusters)
        tasks = len({a.item for a, _ in shared})
        found.append(
            Comparison(
                task,
                name,
                first,
                second,
                mean.mean,
                mean.low,
                mean.high,
                p,
                p,
                tasks,
                mean.clusters,
            )
        )
    return found


def worst(
    answers: Mapping[str, Sequence[Scored]], agent: str, metric: int, most: int
) -> list[tuple[Scored, float]]:
    """Choose an agent's answers to look at: the lowest scores, where others did best, and so on.

    Returned with the best score that another agent had on the same question.
    """
    others: dict[tuple[int, int, int], float] = defaultdict(float)
    key: Callable[[Scored], tuple[int, int, int]] = lambda a: (a.seed, a.index, a.question)  # noqa: E731
    for name, own in answers.items():
        if name != agent:
            for a in own:
                others[key(a)] = max(others[key(a)], a.scores[metric])
    ranked = sorted(
        (a for a in answers[agent] if a.scores[metric] < 1),
        key=lambda a: (a.scores[metric] - others[key(a)], a.scores[metric], key(a)),
    )
    return [(a, others[key(a)]) for a in ranked[:most]]

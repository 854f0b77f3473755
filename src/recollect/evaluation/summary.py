"""From scored answers to results: means with intervals, paired comparisons, costs.

Pure functions over `Scored` answers and stored episodes; knows nothing of models or files.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from statistics import stdev

from recollect.evaluation.results import Comparison, Estimate
from recollect.evaluation.scoring import Scored
from recollect.metrics import bootstrap_interval, paired_p_value, wilson

RESAMPLES = 10_000
"""For what conclusions rest on: primary metrics and comparisons."""
FEWER = 2_000
"""For all that stands beside it."""


def score(answers: Sequence[Scored], metric: int, resamples: int = RESAMPLES) -> Estimate:
    """Average one metric; the interval is Wilson's where it may be, else bootstrapped by task."""
    by_task = scores_by_task(answers, metric)
    flat = [value for values in by_task.values() for value in values]
    failed = sum(answer.failed for answer in answers)
    mean = sum(flat) / len(flat)
    if len(flat) == len(by_task) and set(flat) <= {0.0, 1.0}:
        low, high = wilson(sum(flat), len(flat))
        return Estimate(mean, low, high, len(flat), failed, len(by_task), "wilson")
    low, high = bootstrap_interval(list(by_task.values()), resamples=resamples)
    if low == high:
        # One task, or tasks that all agree: drawing them again cannot show any doubt.
        low, high = wilson(mean * len(by_task), len(by_task))
        return Estimate(mean, low, high, len(flat), failed, len(by_task), "wilson")
    return Estimate(mean, low, high, len(flat), failed, len(by_task), "bootstrap")


def scores_by_task(answers: Iterable[Scored], metric: int) -> dict[str, list[float]]:
    """Collect one metric's scores by task, whatever the seed."""
    found: dict[str, list[float]] = defaultdict(list)
    for answer in answers:
        found[answer.task_id].append(answer.scores[metric])
    return found


def by_seed(answers: Iterable[Scored], metric: int) -> tuple[dict[str, float], float | None]:
    """Return a metric's mean for every seed, and their standard deviation if there are several."""
    values: dict[int, list[float]] = defaultdict(list)
    for answer in answers:
        values[answer.seed].append(answer.scores[metric])
    means = {str(seed): sum(v) / len(v) for seed, v in sorted(values.items())}
    return means, stdev(means.values()) if len(means) > 1 else None


def by_axis(answers: Iterable[Scored], metric: int) -> dict[str, dict[str, Estimate]]:
    """Average along every axis that parts the answers."""
    parts: dict[str, dict[str, list[Scored]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers:
        for axis, value in answer.axes:
            parts[axis][value].append(answer)
    return {
        axis: {value: score(own, metric, FEWER) for value, own in sorted(values.items())}
        for axis, values in sorted(parts.items())
    }


def compare(
    answers: Mapping[str, Sequence[Scored]], task: str, metric: int, name: str
) -> list[Comparison]:
    """Compare every two agents on the tasks that both were given, question by question."""
    scores = {
        agent: {(a.task_id, a.seed, a.index, a.question): a.scores[metric] for a in own}
        for agent, own in answers.items()
    }
    found: list[Comparison] = []
    for first, second in combinations(scores, 2):
        differences: dict[str, list[float]] = defaultdict(list)
        for key in scores[first].keys() & scores[second].keys():
            differences[key[0]].append(scores[first][key] - scores[second][key])
        if not differences:
            continue
        ordered = [differences[task_id] for task_id in sorted(differences)]
        flat = [d for own in ordered for d in own]
        low, high = bootstrap_interval(ordered, resamples=RESAMPLES)
        means = [sum(own) / len(own) for own in ordered]
        p = paired_p_value(means, [0.0] * len(means))
        mean = sum(flat) / len(flat)
        found.append(Comparison(task, name, first, second, mean, low, high, p, p, len(ordered)))
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number, so that the chance of any false alarm keeps its bound."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def count_failures(kinds: Iterable[str | None]) -> dict[str, int]:
    """Count failures by what they were, the most frequent first."""
    return dict(Counter(kind for kind in kinds if kind is not None).most_common())


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

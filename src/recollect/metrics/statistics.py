"""Means and comparisons: how sure we are of a score.

Scores come as clusters of units of samples: the answers of a conversation, each perhaps given
several times. What a cluster shares (a text, an article, a writer) makes its answers alike, so
their number is less than it looks. Every sum is exact (`math.fsum`): no order changes a digit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

from recollect.metrics.student_t import student

Clusters = Sequence[Sequence[Sequence[float]]]
"""Scores by cluster and by unit: one score for every sample of a unit."""

ALIKE = 0.2
"""How alike answers of a cluster are taken to be (their ICC) where the data cannot tell."""


def wilson(
    successes: float, n: float, confidence: float = 0.95, quantile: float | None = None
) -> tuple[float, float]:
    """Return Wilson's score interval for a proportion; (0, 1) where nothing was measured.

    A larger `quantile` than the normal one widens it where the variance had to be estimated.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes out of {n}")
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2) if quantile is None else quantile
    p = successes / n
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2) / (1 + z * z / n)
    # The bounds touch p at 0 and 1 up to rounding.
    return max(0.0, min(p, center - half)), min(1.0, max(p, center + half))


@dataclass(frozen=True)
class Interval:
    """A mean, its 95% interval, and what it rests on."""

    mean: float
    low: float
    high: float
    clusters: int
    independent: bool
    """Whether all scores are 0 or 1 and each is alone, so that it is Wilson's."""


def share_interval(clusters: Clusters, confidence: float = 0.95) -> Interval:
    """Return the mean of scores in [0, 1] with an interval that respects clusters.

    Wilson's where scores are 0 or 1 and each is a cluster of its own. Otherwise Wilson's form with
    the number of answers that independent ones would need for the same variance, and Student's
    quantile for how well that variance is known.
    """
    sample = _Sample.of(clusters)
    n, mean = sample.size, sample.mean
    if n == sample.clusters and all(u in (0.0, 1.0) for u in sample.values):
        low, high = wilson(mean * n, n, confidence)
        return Interval(mean, low, high, sample.clusters, True)
    if sample.clusters == 1:
        low, high = wilson(min(1.0, mean), 1, confidence)
        return Interval(mean, low, high, 1, False)
    spread = mean * (1 - mean)
    found = sample.variance * sample.units / spread if spread > 0 else 0.0
    # The fewer answers differ, the less they say about how alike those of a cluster are.
    inflation = (sample.odd * found + sample.assumed) / (sample.odd + 1)
    effective = sample.units / inflation
    low, high = wilson(
        min(1.0, mean) * effective, effective, quantile=student(confidence, sample.freedom)
    )
    return Interval(mean, low, high, sample.clusters, False)


def score_interval(clusters: Clusters) -> Interval:
    """Return the interval of a share where all scores are in [0, 1], else that of any mean."""
    scores = (x for cluster in clusters for unit in cluster for x in unit)
    return (share_interval if all(0 <= x <= 1 for x in scores) else mean_interval)(clusters)


def mean_interval(
    clusters: Clusters, limit: float = math.inf, confidence: float = 0.95
) -> Interval:
    """Return the mean of any scores, such as differences or rewards, with its interval.

    Where all scores agree, others may still differ: by at most 1, as often as Wilson's bound for
    what was never seen. `limit` is the largest mean there can be, to either side.
    """
    sample = _Sample.of(clusters)
    unseen = wilson(0, max(1.0, sample.units / sample.assumed), confidence)[1]
    half = max(1.0, unseen) if sample.clusters == 1 else unseen
    if sample.clusters > 1:
        t = student(confidence, sample.freedom)
        half = math.hypot(t * math.sqrt(sample.variance), unseen / math.sqrt(sample.odd + 1))
    low, high = max(-limit, sample.mean - half), min(limit, sample.mean + half)
    return Interval(sample.mean, low, high, sample.clusters, False)


@dataclass(frozen=True)
class _Sample:
    """Sums over clusters and over units: all that intervals need."""

    sums: tuple[float, ...]
    """By cluster."""
    sizes: tuple[int, ...]
    """Scores of every cluster."""
    unit_sums: tuple[float, ...]
    unit_sizes: tuple[int, ...]
    counts: tuple[int, ...]
    """Units of every cluster."""

    @classmethod
    def of(cls, clusters: Clusters) -> _Sample:
        kept = [[unit for unit in cluster if len(unit)] for cluster in clusters]
        kept = [cluster for cluster in kept if cluster]
        if not kept:
            raise ValueError("no scores to average")
        units = [unit for cluster in kept for unit in cluster]
        return cls(
            tuple(math.fsum(x for unit in cluster for x in unit) for cluster in kept),
            tuple(sum(map(len, cluster)) for cluster in kept),
            tuple(map(math.fsum, units)),
            tuple(map(len, units)),
            tuple(map(len, kept)),
        )

    @property
    def clusters(self) -> int:
        return len(self.sizes)

    @property
    def units(self) -> int:
        return len(self.unit_sizes)

    @cached_property
    def size(self) -> int:
        return sum(self.sizes)

    @cached_property
    def mean(self) -> float:
        return math.fsum(self.sums) / self.size

    @cached_property
    def values(self) -> list[float]:
        return [s / n for s, n in zip(self.unit_sums, self.unit_sizes, strict=True)]

    @cached_property
    def odd(self) -> int:
        """Units that differ from the most frequent value."""
        return self.units - max(Counter(self.values).values())

    @cached_property
    def assumed(self) -> float:
        """By how much clusters inflate the variance if their answers are `ALIKE`."""
        pairs = math.fsum(n * n for n in self.counts) / self.units
        return 1 + (pairs - 1) * ALIKE

    @cached_property
    def variance(self) -> float:
        """The variance of the mean over clusters, at least that of independent units."""
        clustered = _robust(self.sums, self.sizes, self.mean)
        alone = _robust(self.unit_sums, self.unit_sizes, self.mean)
        return max(clustered * self._bias, alone)

    @property
    def _bias(self) -> float:
        return max(1.0, *(bias for bias, _ in map(self._working, (0.0, ALIKE))))

    @cached_property
    def freedom(self) -> float:
        """Degrees of freedom of the variance: fewer where clusters differ in size, or some are
        extreme (skewed scores: their variance is known less well than that of normal ones)."""
        parts = _parts(self.sums, self.sizes, self.mean)
        total, squares = math.fsum(parts), math.fsum(p * p for p in parts)
        standing_out = 2 * total * total / squares - 1 if squares > 0 else math.inf
        return max(1.0, min(standing_out, *(f for _, f in map(self._working, (0.0, ALIKE)))))

    def _working(self, alike: float) -> tuple[float, float]:
        """Return how much too small the variance is on average, and its degrees of freedom.

        Satterthwaite's, if answers of a cluster had this ICC. The sum over all pairs of clusters is
        multiplied out, so that it takes as many steps as there are clusters.
        """
        n_K, total = self.sizes, self.size
        v_K = [n * (1 + (n - 1) * alike) for n in n_K]
        w_K = [1 / (1 - n / total) for n in n_K]
        v = math.fsum(v_K)
        own_K = [
            s - 2 * n * s / total + n * n * v / total**2 for n, s in zip(n_K, v_K, strict=True)
        ]
        expected = math.fsum(w * own for w, own in zip(w_K, own_K, strict=True))
        a = math.fsum(w * n * n for w, n in zip(w_K, n_K, strict=True))
        b = math.fsum(w * s * s for w, s in zip(w_K, v_K, strict=True))
        d = math.fsum(w * n * s for w, n, s in zip(w_K, n_K, v_K, strict=True))
        pairs = (2 * a * b + 2 * d * d) / total**2 - 4 * a * d * v / total**3
        pairs += a * a * v * v / total**4
        rows = zip(w_K, v_K, own_K, strict=True)
        pairs += math.fsum(w * w * s * (2 * own - s) for w, s, own in rows)
        return v / expected, expected**2 / pairs


def _parts(sums: Sequence[float], sizes: Sequence[int], mean: float) -> list[float]:
    """Return what every cluster adds to the variance of the mean (CR2: corrected for its size)."""
    total = sum(sizes)
    return [
        (s - n * mean) ** 2 / (1 - n / total) / total**2 for s, n in zip(sums, sizes, strict=True)
    ]


def _robust(sums: Sequence[float], sizes: Sequence[int], mean: float) -> float:
    return math.fsum(_parts(sums, sizes, mean)) if len(sums) > 1 else 0.0


def cluster_scores(scored: Iterable[tuple[str, str, float]]) -> list[list[list[float]]]:
    """Group scores by (cluster, unit), in the order of their names.

    Clusters that share a unit are one: it was asked about several texts, drawn by several seeds.
    """
    rows = list(scored)
    joined: dict[str, str] = {}  # every cluster, and one before it in the order of names
    first: dict[str, str] = {}

    def head(cluster: str) -> str:
        while joined[cluster] != cluster:
            joined[cluster] = joined[joined[cluster]]  # so that no way stays long
            cluster = joined[cluster]
        return cluster

    for cluster, unit, _ in rows:
        joined.setdefault(cluster, cluster)
        one, other = sorted((head(cluster), head(first.setdefault(unit, cluster))))
        joined[other] = one
    found: dict[str, dict[str, list[float]]] = {}
    for cluster, unit, score in rows:
        found.setdefault(head(cluster), {}).setdefault(unit, []).append(score)
    return [[units[name] for name in sorted(units)] for _, units in sorted(found.items())]


def runs_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Return the mean over runs that differ in their seed, with Student's interval.

    One run has no spread and so no interval: its ends are NaN.
    """
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return mean, math.nan, math.nan
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = student(confidence, n - 1) * spread / math.sqrt(n)
    return mean, mean - half, mean + half

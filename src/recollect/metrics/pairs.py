"""Paired comparisons: whether two agents differ on the same questions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np

from recollect.metrics.statistics import Clusters

EXACT_FLIPS = 16
"""Clusters up to which every way to flip their signs is tried."""


def paired_p_value(clusters: Clusters, resamples: int = 10_000) -> float:
    """Return the two-sided p-value that differences are symmetric, flipping whole clusters' signs.

    What is tested is their sum, so it is the mean difference over all answers, whatever the sizes
    of the clusters. Exact where all clusters differ by the same (McNemar's test for 0/1 scores) and
    for few clusters; otherwise drawn by a seed that the differences decide.
    """
    sums = (math.fsum(x for unit in cluster for x in unit) for cluster in clusters)
    found = sorted(x for x in sums if x)
    if not found:
        return 1.0
    if len(set(map(abs, found))) == 1:
        return _mcnemar(sum(x > 0 for x in found), sum(x < 0 for x in found))
    differences = np.array(found)
    least = abs(math.fsum(found)) * (1 - 1e-12)  # ties must survive another summation order
    count = len(found)
    if count <= EXACT_FLIPS:
        flips = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
        return float((np.abs((flips * 2.0 - 1) @ differences) >= least).mean())
    random = np.random.default_rng(int.from_bytes(blake2b(differences.tobytes()).digest()[:8]))
    extreme = _extreme(lambda shape: random.integers(2, size=shape), differences, least, resamples)
    return float((extreme + 1) / (resamples + 1))  # the identity counts as one flip


def _extreme(
    draw: Callable[[tuple[int, int]], np.ndarray],
    differences: np.ndarray,
    least: float,
    resamples: int,
) -> int:
    extreme = 0
    block = max(1, 1_000_000 // len(differences))  # bounds the memory, whatever the number of items
    for start in range(0, resamples, block):
        signs = draw((min(block, resamples - start), len(differences))) * 2.0 - 1
        extreme += int((np.abs(signs @ differences) >= least).sum())
    return extreme


def _mcnemar(wins: int, losses: int) -> float:
    n = wins + losses
    tail = sum(math.comb(n, k) for k in range(min(wins, losses) + 1))
    return min(1.0, 2 * tail / 2**n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number, so that the chance of any false alarm keeps its bound."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted

"""Means and comparisons: how sure we are of a score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np


def wilson(successes: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's score interval for a proportion; (0, 1) where nothing was measured."""
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes out of {n}")
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    p = successes / n
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2) / (1 + z * z / n)
    # The bounds touch p at 0 and 1 up to rounding.
    return max(0.0, min(p, center - half)), min(1.0, max(p, center + half))


def bootstrap_interval(
    scores_by_task: Sequence[Sequence[float]],
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the percentile interval of the mean score, drawing whole tasks with replacement.

    Questions of one task share its text and its luck: they are no independent draws. For 0/1 scores
    of single-question tasks `wilson` is better, above all near 0 and 1.
    """
    sums_T = np.array([sum(scores) for scores in scores_by_task if len(scores)], dtype=float)
    sizes_T = np.array([len(scores) for scores in scores_by_task if len(scores)])
    if not len(sizes_T):
        raise ValueError("no scores to resample")
    random = np.random.default_rng(seed)
    means = np.empty(resamples)
    block = max(1, 1_000_000 // len(sizes_T))  # bounds the memory, whatever the number of tasks
    for start in range(0, resamples, block):
        shape = (min(block, resamples - start), len(sizes_T))
        drawn = random.integers(len(sizes_T), size=shape)
        means[start : start + block] = sums_T[drawn].sum(1) / sizes_T[drawn].sum(1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def paired_p_value(
    first: Sequence[float], second: Sequence[float], resamples: int = 10_000, seed: int = 0
) -> float:
    """Return the two-sided p-value that two methods score alike on the same items.

    Exact McNemar where all differences have one size (0/1 scores); otherwise the signs of the
    differences are flipped at random, and the identity counts as one flip.
    """
    if len(first) != len(second):
        raise ValueError(f"a paired test of {len(first)} and {len(second)} scores")
    differences = np.subtract(first, second, dtype=float)
    differences = differences[differences != 0]
    if not len(differences):
        return 1.0
    if len(set(np.abs(differences))) == 1:
        return _mcnemar(int((differences > 0).sum()), int((differences < 0).sum()))
    random = np.random.default_rng(seed)
    observed = abs(differences.sum()) * (1 - 1e-12)  # ties must survive another summation order
    extreme = 0
    block = max(1, 1_000_000 // len(differences))  # bounds the memory, whatever the number of items
    for start in range(0, resamples, block):
        shape = (min(block, resamples - start), len(differences))
        signs = random.integers(2, size=shape, dtype=np.int8) * 2.0 - 1
        extreme += int((np.abs(signs @ differences) >= observed).sum())
    return float((extreme + 1) / (resamples + 1))


def _mcnemar(wins: int, losses: int) -> float:
    n = wins + losses
    tail = sum(math.comb(n, k) for k in range(min(wins, losses) + 1))
    return min(1.0, 2 * tail / 2**n)

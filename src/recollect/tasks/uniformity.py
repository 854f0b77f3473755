"""Are positions uniform? A histogram and Pearson's chi-square test. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def histogram(
    positions: Iterable[tuple[int, int]], bins: int = 10
) -> tuple[list[int], list[float]]:
    """Count (position, length) pairs by position, and how many chance would put there.

    A bin holds the positions whose middle falls into it, so short texts fill bins unevenly: what
    chance would give is counted position by position and not one count for all bins.
    """
    found, expected = [0] * bins, [0.0] * bins
    lengths: dict[int, int] = {}
    for position, length in positions:
        found[_bin(position, length, bins)] += 1
        lengths[length] = lengths.get(length, 0) + 1
    for length, count in lengths.items():
        for position in range(length):
            expected[_bin(position, length, bins)] += count / length
    return found, expected


def _bin(position: int, length: int, bins: int) -> int:
    return (2 * position + 1) * bins // (2 * length)


def chi_square_p(found: Sequence[int], expected: Sequence[float]) -> float:
    """Return how likely counts differ at least so much from what was expected, by chance."""
    pairs = [(f, e) for f, e in zip(found, expected, strict=True) if e > 0]
    if any(f for f, e in zip(found, expected, strict=True) if e <= 0):
        return 0.0
    statistic = sum((f - e) ** 2 / e for f, e in pairs)
    return chi_square_tail(statistic, len(pairs) - 1)


def chi_square_tail(statistic: float, freedom: int) -> float:
    """Return the upper tail of the chi-square distribution, in closed form for whole freedoms."""
    if freedom < 1:
        return 1.0
    x = statistic / 2
    # Q(a + 1, x) = Q(a, x) + x^a e^-x / Gamma(a + 1), from Q(1/2) = erfc(sqrt x) or Q(1) = e^-x.
    tail = math.erfc(math.sqrt(x)) if freedom % 2 else math.exp(-x)
    a = 0.5 if freedom % 2 else 1.0
    while 2 * a < freedom:
        tail += math.exp(a * math.log(x) - x - math.lgamma(a + 1)) if x > 0 else 0.0
        a += 1
    return min(1.0, tail)

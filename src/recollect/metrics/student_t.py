"""Student's distribution, without SciPy: a quantile is all that intervals need."""

from __future__ import annotations

import math
from functools import lru_cache


@lru_cache(1024)
def student(confidence: float, freedom: float) -> float:
    """Return the quantile of Student's distribution for a two-sided interval."""
    low, high = 0.0, 1.0
    while _outside(high, freedom) > 1 - confidence:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if _outside(middle, freedom) > 1 - confidence:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _outside(t: float, freedom: float) -> float:
    """Return the probability beyond -t and t."""
    return _beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def _beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction."""
    if x <= 0 or x >= 1:
        return min(1.0, max(0.0, x))
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(b, a, 1 - x)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front += a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, 1000):
        step = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / (1 + step * d), 1 + step / c
        found *= d * c
        step = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1 / (1 + step * d), 1 + step / c
        found *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return math.exp(front) * found / a

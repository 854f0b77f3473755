"""How often 95% intervals cover the truth, over clusters, their sizes and how alike answers are.

    python benchmarks/coverage.py [--times 1000]

Clusters' shares follow a beta distribution with the given intraclass correlation; answers are right
or wrong. Beside each coverage stands the width, relative to that of a normal interval that knows
the true variance. Differences of two agents are drawn likewise, and the paired test's false alarms
are counted.
"""

from __future__ import annotations

import argparse
import math
from itertools import product

import numpy as np

from recollect.metrics import mean_interval, paired_p_value, share_interval

SIZES = {
    "4 each": lambda _random, k: np.full(k, 4),
    "100 each": lambda _random, k: np.full(k, 100),
    "1 to 40": lambda random, k: random.integers(1, 41, k),
}
CLUSTERS, ALIKE, SHARES = (5, 10, 24, 50), (0.0, 0.05, 0.2), (0.1, 0.5, 0.9)


def covered(
    random: np.random.Generator, k: int, sizes: str, icc: float, p: float, times: int
) -> tuple[float, float]:
    """Return how often p is covered, and the relative width."""
    hits = width = 0.0
    for _ in range(times):
        n_K = SIZES[sizes](random, k)
        share_K = np.full(k, p)
        if icc:
            scale = (1 - icc) / icc
            share_K = random.beta(p * scale, (1 - p) * scale, k)
        right_K = random.binomial(n_K, share_K)
        pairs = zip(right_K, n_K, strict=True)
        found = share_interval([[[1.0]] * r + [[0.0]] * (n - r) for r, n in pairs])
        hits += found.low <= p <= found.high
        total = n_K.sum()
        inflation = 1 + ((n_K**2).sum() / total - 1) * icc
        width += (found.high - found.low) / (3.92 * math.sqrt(p * (1 - p) / total * inflation))
    return hits / times, width / times


def differences(random: np.random.Generator, k: int, icc: float, times: int) -> tuple[float, float]:
    """Return how often no difference is covered, and how often one is found all the same."""
    hits = alarms = 0
    for _ in range(times):
        n_K = random.integers(1, 41, k)
        noise = math.sqrt(1 - icc)
        own = [random.normal(random.normal(0, 0.3 * math.sqrt(icc)), 0.3 * noise, n) for n in n_K]
        clusters = [[[float(x)] for x in np.clip(one, -1, 1)] for one in own]
        found = mean_interval(clusters, limit=1.0)
        hits += found.low <= 0 <= found.high
        alarms += paired_p_value(clusters, 1000) < 0.05
    return hits / times, alarms / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=1000)
    times = parser.parse_args().times
    random = np.random.default_rng(0)
    lowest = 1.0
    print("| clusters | answers | ICC | true share: coverage (relative width) |\n|---|---|---|---|")
    for k, sizes, icc in product(CLUSTERS, SIZES, ALIKE):
        cells = [covered(random, k, sizes, icc, p, times) for p in SHARES]
        lowest = min(lowest, *(hits for hits, _ in cells))
        pairs = zip(SHARES, cells, strict=True)
        shown = ", ".join(f"{p}: {hits:.3f} ({width:.2f})" for p, (hits, width) in pairs)
        print(f"| {k} | {sizes} | {icc} | {shown} |", flush=True)
    print(f"\nlowest coverage: {lowest:.3f}\n")
    print("| clusters | ICC | differences: coverage | p < 0.05 |\n|---|---|---|---|")
    for k, icc in product(CLUSTERS, ALIKE):
        hits, alarms = differences(random, k, icc, max(1, times // 4))
        print(f"| {k} | {icc} | {hits:.3f} | {alarms:.3f} |", flush=True)


if __name__ == "__main__":
    main()

"""How often 95% intervals cover the truth, over clusters, their sizes and how alike answers are.

    python benchmarks/coverage.py [--times 1000] [--processes 8]

Clusters' shares follow a beta distribution with the given intraclass correlation; answers are right
or wrong. Beside each coverage is the width, relative to that of a normal interval that knows the
true variance. Differences of two agents are drawn likewise, and the paired test's false alarms are
counted. Every cell has a seed of its own: any number of processes gives the same figures.
"""

from __future__ import annotations

import argparse
import math
from concurrent.futures import Executor, ProcessPoolExecutor
from itertools import product

import numpy as np

from recollect.metrics import mean_interval, paired_p_value, share_interval, wilson

SIZES = {
    "1 each": lambda _random, k: np.full(k, 1),
    "4 each": lambda _random, k: np.full(k, 4),
    "100 each": lambda _random, k: np.full(k, 100),
    "1 to 40": lambda random, k: random.integers(1, 41, k),
    "3 each, one of half of all": lambda _random, k: np.array([3 * (k - 1), *[3] * (k - 1)]),
    "skewed, 1 to 150": lambda random, k: np.minimum(random.geometric(0.05, k) ** 1.3, 150) // 1,
}
CLUSTERS, ALIKE = (5, 7, 10, 24, 50), (0.0, 0.05, 0.1, 0.2)
SHARES = (0.05, 0.1, 0.5, 0.9, 0.95)
SAMPLES = (1, 4)
"""How often every question is answered."""
SAME = 0.5
"""How alike the answers to one question are, beyond those of its cluster."""


def covered(
    seed: int, k: int, sizes: str, icc: float, samples: int, p: float, times: int
) -> tuple[float, float]:
    """Return how often p is covered, and the relative width."""
    random = np.random.default_rng(seed)
    hits = width = 0.0
    for _ in range(times):
        n_K = SIZES[sizes](random, k).astype(int)
        share_K = alike(random, np.full(k, p), icc)
        clusters = []
        for n, share in zip(n_K, share_K, strict=True):
            own = np.full(n, share) if samples == 1 else alike(random, np.full(n, share), SAME)
            clusters.append((random.random((n, samples)) < own[:, None]).astype(float).tolist())
        found = share_interval(clusters)
        hits += found.low <= p <= found.high
        total = n_K.sum()
        inflation = 1 + ((n_K**2).sum() / total - 1) * icc
        width += (found.high - found.low) / (3.92 * math.sqrt(p * (1 - p) / total * inflation))
    return hits / times, width / times


def alike(random: np.random.Generator, share_N: np.ndarray, icc: float) -> np.ndarray:
    """Draw shares around others, so that two answers by one of them correlate by `icc`."""
    if not icc:
        return share_N
    scale = (1 - icc) / icc
    inside = np.clip(share_N, 1e-9, 1 - 1e-9)
    return random.beta(np.maximum(inside * scale, 1e-9), np.maximum((1 - inside) * scale, 1e-9))


def differences(seed: int, k: int, icc: float, times: int) -> tuple[float, float]:
    """Return how often no difference is covered, and how often one is found all the same."""
    random = np.random.default_rng(seed)
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


def show_single() -> None:
    """Print how often Wilson's interval, for single answers, covers the truth: no simulation."""
    print(
        "| true share | single answers: lowest coverage for n from 5 to 50 | mean |\n|---|---|---|"
    )
    for p in SHARES:
        found = []
        for n in range(CLUSTERS[0], CLUSTERS[-1] + 1):
            inside = [x for x in range(n + 1) if (i := wilson(x, n))[0] <= p <= i[1]]
            found.append(sum(math.comb(n, x) * p**x * (1 - p) ** (n - x) for x in inside))
        print(f"| {p} | {min(found):.3f} | {sum(found) / len(found):.3f} |")


def show_shares(pool: Executor, times: int) -> None:
    """Print the coverage of every setting, and the lowest."""
    rows = [
        (k, sizes, icc, samples)
        for k, sizes, icc, samples in product(CLUSTERS, SIZES, ALIKE, SAMPLES)
        if sizes in ("4 each", "1 to 40") or (samples == 1) == (sizes != "1 each")
    ]
    jobs = [
        [pool.submit(covered, 100 * number + i, *row, p, times) for i, p in enumerate(SHARES)]
        for number, row in enumerate(rows)
    ]
    lowest = 1.0, ""
    below = 0
    print("| clusters | questions | ICC | samples | true share: coverage (relative width) |")
    print("|---|---|---|---|---|")
    for (k, sizes, icc, samples), own in zip(rows, jobs, strict=True):
        cells = [job.result() for job in own]
        pairs = list(zip(SHARES, cells, strict=True))
        place = f"{k} clusters, {sizes}, ICC {icc}, {samples} samples"
        lowest = min(lowest, *((hits, f"{place}, share {p}") for p, (hits, _) in pairs))
        below += sum(hits < 0.93 for hits, _ in cells)
        shown = ", ".join(f"{p}: {hits:.3f} ({width:.2f})" for p, (hits, width) in pairs)
        print(f"| {k} | {sizes} | {icc} | {samples} | {shown} |", flush=True)
    count = len(rows) * len(SHARES)
    print(f"\nlowest coverage of {count}: {lowest[0]:.3f} ({lowest[1]}); below 0.93: {below}\n")


def show_skewed() -> None:
    """Print false alarms where one agent rarely gains much and mostly loses a little."""
    print("| questions | skewed differences of mean 0: p at most 0.05 | 0 outside the interval |")
    print("|---|---|---|")
    for n, times in ((10, 2000), (30, 2000), (100, 600)):
        random = np.random.default_rng(n)
        alarms = outside = 0
        for _ in range(times):
            clusters = [[[float(x)]] for x in np.where(random.random(n) < 0.05, 1.0, -1 / 19)]
            found = mean_interval(clusters, limit=1.0)
            alarms += paired_p_value(clusters, 1000) <= 0.05
            outside += not found.low <= 0 <= found.high
        print(f"| {n} | {alarms / times:.3f} | {outside / times:.3f} |", flush=True)


def main() -> None:
    """Simulate shares, then differences."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=400)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    show_single()
    with ProcessPoolExecutor(options.processes) as pool:
        show_shares(pool, options.times)
        print("| clusters | ICC | differences: coverage | p < 0.05 |\n|---|---|---|---|")
        cells = list(product(CLUSTERS, ALIKE))
        drawn = max(1, options.times // 4)
        jobs = [pool.submit(differences, i, *cell, drawn) for i, cell in enumerate(cells)]
        for (k, icc), job in zip(cells, jobs, strict=True):
            hits, alarms = job.result()
            print(f"| {k} | {icc} | {hits:.3f} | {alarms:.3f} |", flush=True)
    show_skewed()


if __name__ == "__main__":
    main()

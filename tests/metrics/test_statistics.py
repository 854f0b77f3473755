"""Intervals and paired tests against published and hand-worked values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.metrics import holm, mean_interval, paired_p_value, share_interval, wilson
from recollect.metrics.student_t import student


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.2775328),  # z^2 / (n + z^2)
        (5, 10, 0.2365931, 0.7634069),
        (10, 10, 0.7224672, 1.0),
        (81, 263, 0.2552908, 0.3662205),  # Newcombe (1998), table I, method 3
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson(successes: int, n: int, low: float, high: float) -> None:
    assert wilson(successes, n) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_proportion_and_is_symmetric(counts: tuple[int, int]) -> None:
    successes, n = counts
    low, high = wilson(successes, n)
    assert 0 <= low <= successes / n <= high <= 1
    mirrored = wilson(n - successes, n)
    assert (1 - high, 1 - low) == pytest.approx(mirrored)
    assert wilson(successes, n, 0.99)[0] <= low


def test_wilson_refuses_more_successes_than_trials() -> None:
    with pytest.raises(ValueError, match="3 successes out of 2"):
        wilson(3, 2)


def alone(scores: Sequence[float]) -> list[list[list[float]]]:
    """Every score is a cluster of its own."""
    return [[[score]] for score in scores]


def clusters(scores: Sequence[Sequence[float]]) -> list[list[list[float]]]:
    """Every score is a unit of its own."""
    return [[[score] for score in own] for own in scores]


def test_single_right_and_wrong_answers_get_wilsons_interval() -> None:
    found = share_interval(alone([1.0] * 3 + [0.0] * 7))
    assert (found.low, found.high) == wilson(3, 10) and found.independent
    assert (found.mean, found.clusters) == (0.3, 10)


def test_clusters_are_drawn_not_answers() -> None:
    """Ten clusters that agree within themselves say what ten answers say."""
    split = clusters([[0.0] * 50, [1.0] * 50] * 5)
    found = share_interval(split)
    # The standard error is 0.5 / sqrt(10), about 0.16.
    assert found.low < 0.25 and found.high > 0.75 and found.clusters == 10
    single = share_interval(alone([s for own in split for (s,) in own]))
    assert single.high - single.low < 0.1


def test_several_samples_of_a_question_are_no_independent_draws() -> None:
    once = share_interval([[[float(i % 2)]] for i in range(20)])
    again = share_interval([[[float(i % 2)] * 16] for i in range(20)])
    assert again.high - again.low >= once.high - once.low - 1e-9


def test_students_quantiles() -> None:
    """From the usual table, and Satterthwaite's between its lines."""
    for freedom, quantile in ((1, 12.7062), (2, 4.3027), (9, 2.2622), (30, 2.0423), (1e6, 1.9600)):
        assert student(0.95, freedom) == pytest.approx(quantile, abs=1e-4)
    assert student(0.99, 5) == pytest.approx(4.0321, abs=1e-4)
    assert student(0.95, 4) > student(0.95, 4.5) > student(0.95, 5)


def test_a_mean_of_equal_clusters_by_hand() -> None:
    """Forty clusters of two, with means 0.2, 0.4, 0.6 and 0.8: by the usual formula."""
    values = [[m - 0.1, m + 0.1] for m in (0.2, 0.4, 0.6, 0.8)] * 10
    found = mean_interval(clusters(values))
    error = math.sqrt(10 * (0.09 + 0.01 + 0.01 + 0.09) / 39 / 40)
    half = (found.high - found.low) / 2
    assert found.mean == pytest.approx(0.5)
    # What was never seen widens it a little.
    assert student(0.95, 39) * error < half < 1.02 * student(0.95, 39) * error


SHARES = st.sampled_from([0.0, 1.0]) | st.floats(0, 1)
SOME = st.lists(
    st.lists(st.lists(SHARES, min_size=1, max_size=3), max_size=4), min_size=1, max_size=6
)


@given(SOME, st.randoms())
def test_no_interval_has_no_width_and_no_order_changes_a_digit(scores, random) -> None:
    if not any(scores):
        return
    for measure in (share_interval, mean_interval):
        found = measure(scores)
        assert found.low < found.high and found.low <= found.mean <= found.high
        mixed = [random.sample(own, len(own)) for own in scores]
        assert measure(random.sample(mixed, len(mixed))) == found
    share = share_interval(scores)
    assert share.low >= 0 and share.high <= 1
    assert paired_p_value(scores) == paired_p_value(random.sample(scores, len(scores)))


@pytest.mark.parametrize("right", [0.0, 1.0, 0.5])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 40, 1), (5, 30, 1), (50, 1, 4), (200, 1, 1)])
def test_agreement_is_no_certainty(right: float, shape: tuple[int, int, int]) -> None:
    """All right or all wrong, however many samples: the interval is that of fewer answers."""
    groups, units, samples = shape
    scores = [[[right] * samples for _ in range(units)] for _ in range(groups)]
    for found in (share_interval(scores), mean_interval(scores, limit=1.0)):
        assert found.high - found.low > 0.01
    if right != 0.5:
        least = wilson(0, groups * units)[1]
        found = share_interval(scores)
        assert found.high - found.low >= least - 1e-12


def simulated(
    groups: int, sizes: Sequence[int], icc: float, p: float, times: int, seed: int
) -> float:
    """Draw clusters whose shares differ by a beta distribution; return how often p is covered."""
    random = np.random.default_rng(seed)
    covered = 0
    for _ in range(times):
        own = np.resize(sizes, groups)
        shares = np.full(groups, p)
        if icc:
            scale = (1 - icc) / icc
            shares = random.beta(p * scale, (1 - p) * scale, groups)
        right = random.binomial(own, shares)
        pairs = zip(right, own, strict=True)
        found = share_interval([[[1.0]] * r + [[0.0]] * (n - r) for r, n in pairs])
        covered += found.low <= p <= found.high
    return covered / times


CELLS = list(product((5, 10, 50), (0.0, 0.05, 0.2), (0.3, 0.9)))


def test_intervals_cover_the_truth() -> None:
    """0.93 and more for 5 to 50 clusters and an ICC of 0 to 0.2; benchmarks/coverage.py has more.

    Each cell is drawn 120 times, so that it may miss by 0.05; all of them together may not.
    """
    sizes = (4, 40, 12, 25)
    found = {
        cell: simulated(cell[0], sizes, cell[1], cell[2], 120, seed)
        for seed, cell in enumerate(CELLS)
    }
    assert min(found.values()) >= 0.88, found
    for icc in (0.0, 0.05, 0.2):
        own = [share for cell, share in found.items() if cell[1] == icc]
        assert sum(own) / len(own) >= 0.93, (icc, found)


def test_paired_p_value_is_mcnemars_for_right_and_wrong() -> None:
    # 1 win against 7 losses: 2 * (1 + 8) / 2^8
    differences = [1.0] + [-1.0] * 7 + [0.0] * 20
    assert paired_p_value(alone(differences)) == pytest.approx(18 / 256)
    assert paired_p_value(alone([-d for d in differences])) == pytest.approx(18 / 256)
    assert paired_p_value(alone([1, -1])) == paired_p_value(alone([0, 0])) == 1.0


def test_paired_p_value_agrees_with_all_sign_flips() -> None:
    """For few clusters exactly; for more of them, whose flips are drawn, nearly."""
    differences = [0.4, -0.1, 0.6, 0.3, 0.2, 0.6]
    exact = all_flips(differences)
    assert paired_p_value(alone(differences)) == exact
    many = [*differences, 0.35, -0.25, 0.15, 0.05, -0.15, 0.45, 0.1, -0.3, 0.25, 0.3, -0.2]
    assert len(many) == 17
    assert paired_p_value(alone(many)) == pytest.approx(all_flips(many), abs=0.01)


def all_flips(differences: Sequence[float]) -> float:
    flips = np.array(list(product((-1, 1), repeat=len(differences))))
    sums = np.abs(flips @ np.array(differences))
    return float((sums >= abs(sum(differences)) - 1e-9).mean())


def test_the_test_is_of_the_mean_that_is_printed() -> None:
    """One large cluster is better, many small ones are worse: the mean over answers is above 0.

    Tested by the means of clusters, the other agent would win.
    """
    scores = clusters([[0.5] * 60, *[[-0.2]] * 8])
    found = mean_interval(scores, limit=1.0)
    assert found.mean > 0.3
    assert paired_p_value(scores) > 0.05 and found.low < 0 < found.high
    small = clusters([[0.5] * 6, *[[0.4, 0.3]] * 12])
    assert paired_p_value(small) < 0.01 and mean_interval(small, limit=1.0).low > 0


def test_no_difference_is_found_more_often_than_it_may_be() -> None:
    """Two agents that are alike, on clusters of unequal size: p below 0.05 in 5% at most."""
    random = np.random.default_rng(3)
    alarms = 0
    for _ in range(300):
        own = [random.normal(random.normal(0, 0.2), 0.3, n) for n in (3, 20, 8, 12, 5, 30, 9, 4)]
        alarms += paired_p_value(clusters([x.tolist() for x in own])) < 0.05
    assert alarms / 300 <= 0.08


def test_holms_correction_by_hand() -> None:
    # 0.01 * 3, then 0.03 * 2, then 0.04 * 1 which may not fall below what came before.
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_never_lowers_a_p_value_and_keeps_the_order(values: list[float]) -> None:
    adjusted = holm(values)
    assert all(p <= a <= 1 for p, a in zip(values, adjusted, strict=True))
    order = np.argsort(values, kind="stable")
    assert all(np.diff(np.array(adjusted)[order]) >= 0)

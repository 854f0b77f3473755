"""Intervals and paired tests against published and hand-worked values."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect import metrics
from recollect.metrics import paired_p_value, wilson


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


def test_bootstrap_draws_tasks_not_questions() -> None:
    split = [[0.0] * 50, [1.0] * 50] * 5
    low, high = metrics.bootstrap_interval(split)
    # ten tasks, not five hundred questions: the standard error is 0.5 / sqrt(10), about 0.16
    assert low < 0.25 and high > 0.75
    single = metrics.bootstrap_interval([[s] for task in split for s in task])
    assert single[1] - single[0] < 0.1
    assert metrics.bootstrap_interval(split) == (low, high)
    assert metrics.bootstrap_interval([[0.5], [], [0.5]]) == (0.5, 0.5)
    with pytest.raises(ValueError, match="no scores"):
        metrics.bootstrap_interval([[], []])


def test_bootstrap_matches_the_normal_interval_on_many_tasks() -> None:
    scores = [[float(i % 4 == 0)] for i in range(2000)]
    low, high = metrics.bootstrap_interval(scores)
    assert (low, high) == pytest.approx(wilson(500, 2000), abs=0.003)


def test_paired_p_value_is_mcnemars_for_right_and_wrong() -> None:
    # 1 win against 7 losses: 2 * (1 + 8) / 2^8
    first, second = [1] + [0] * 7 + [1] * 20, [0] + [1] * 7 + [1] * 20
    assert paired_p_value(first, second) == pytest.approx(18 / 256)
    assert paired_p_value(second, first) == pytest.approx(18 / 256)
    assert paired_p_value([1, 0], [0, 1]) == 1.0
    assert paired_p_value([1, 1], [1, 1]) == 1.0
    with pytest.raises(ValueError, match="paired test of 1 and 2"):
        paired_p_value([1], [1, 0])


def test_paired_p_value_of_graded_scores_agrees_with_all_sign_flips() -> None:
    first = [0.9, 0.4, 0.8, 0.7, 0.3, 0.95]
    second = [0.5, 0.5, 0.2, 0.4, 0.1, 0.35]
    differences = [a - b for a, b in zip(first, second, strict=True)]
    flips = list(product((-1, 1), repeat=len(differences)))
    sums = [abs(sum(s * d for s, d in zip(f, differences, strict=True))) for f in flips]
    exact = sum(total >= abs(sum(differences)) - 1e-9 for total in sums) / len(flips)
    assert paired_p_value(first, second) == pytest.approx(exact, abs=0.01)

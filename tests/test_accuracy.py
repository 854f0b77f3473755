"""Validation: means with n, failures and an interval."""

from __future__ import annotations

import math
from itertools import count

import pytest

from recollect import metrics
from recollect.accuracy import Accuracy, accuracy, by_category, parts
from recollect.types import Context, Episode, Failure, Question, Task

TASK = Task("t", (), ())
NUMBERS = count()


def group(*scores: float | None, **meta: str) -> list[Episode]:
    """Make the episodes of one task, where None stands for a failed one."""
    gone = Failure("policy", "ConnectionError", "gone")
    task = Task(f"t{next(NUMBERS)}", (), (), meta=dict(meta))
    return [
        Episode(
            task, i, scores={} if s is None else {"answer": s}, failure=gone if s is None else None
        )
        for i, s in enumerate(scores)
    ]


def test_failed_episodes_count_as_wrong_and_are_shown():
    result = accuracy([group(1.0), group(None), group(1.0), group(0.0)])
    assert (result.n, result.failed, result.mean) == (4, 1, 0.5)
    assert (result.low, result.high) == metrics.wilson(2, 4)


def test_partial_scores_and_repeats_get_an_interval_over_tasks():
    groups = [group(1.0, 0.5), group(0.0, None), group(1.0, 1.0)]
    result = accuracy(groups)
    assert (result.n, result.failed) == (6, 1)
    assert result.mean == pytest.approx(3.5 / 6)
    expected = metrics.share_interval([[[1, 0.5]], [[0, 0]], [[1, 1]]])
    assert (result.low, result.high) == (expected.low, expected.high)
    assert 0 <= result.low <= result.mean <= result.high <= 1


def test_repeats_of_one_task_are_not_independent():
    """Sixteen agreeing repeats of four tasks say no more than four tasks do."""
    repeated = accuracy([group(*[float(i % 2)] * 16) for i in range(4)])
    single = accuracy([group(float(i % 2)) for i in range(64)])
    assert repeated.n == single.n == 64
    assert repeated.high - repeated.low > 2 * (single.high - single.low)


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_repeats_that_all_agree_leave_doubt(right: float) -> None:
    """With val.n above 1, all right or all wrong, the interval had no width."""
    result = accuracy([group(right, right, right) for _ in range(8)])
    assert result.high - result.low >= 1 - metrics.wilson(8, 8)[0]


def test_questions_of_one_conversation_are_not_independent() -> None:
    apart = accuracy([group(float(i % 2)) for i in range(40)])
    joined = accuracy([group(float(i % 2), cluster=f"conv-{i % 4}") for i in range(40)])
    assert joined.mean == apart.mean
    assert joined.high - joined.low > 1.5 * (apart.high - apart.low)


def test_scores_may_be_of_any_size() -> None:
    """A reward of the user's own may give an answer 3 points, or take some away."""
    result = accuracy([group(3.0), group(-1.0), group(2.0)])
    assert result.low < result.mean < result.high
    assert result.mean == pytest.approx(4 / 3)


def test_a_count_that_happens_to_be_0_or_1_is_no_share() -> None:
    """Of shares there is a bound that no mean can pass; one turn more each changes no width."""

    def turns(more: int) -> Accuracy:
        groups = [group(1.0) for _ in range(12)]
        for i, [episode] in enumerate(groups):
            episode.scores |= {"turns": i % 2 + more, "before": float(i % 2)}
        found = parts(groups)
        assert (found["before"].low, found["before"].high) == metrics.wilson(6, 12)
        return found["turns"]

    few, many = turns(0), turns(1)
    assert many.low - few.low == pytest.approx(1) == many.high - few.high
    assert (few.mean, many.mean) == (0.5, 1.5)


def test_another_score_can_be_asked_for():
    episodes = [Episode(TASK, 0, scores={"answer": 0.0, "f1": 0.5})]
    assert accuracy([episodes], "f1").mean == 0.5


def test_categories_are_averaged_apart():
    def asked(*categories: str) -> Task:
        return Task("t", (), tuple(Question("?", ("!",), category) for category in categories))

    hop = [Episode(asked("hop"), i, scores={"answer": float(i % 2)}) for i in range(4)]
    lost = Episode(asked("hop"), 0, failure=Failure("policy", "ConnectionError", "gone"))
    # Rewards may hold bonuses: they are no accuracy.
    contexts = [Context("answer", question=i, reward=9.0) for i in range(2)]
    both = Episode(asked("hop", "time"), 0, contexts, scores={"answer": 0.5})
    both.answer_scores = [1.0, 0.0]
    found = by_category([hop, [lost], [both], group(1.0)])
    assert list(found) == ["hop", "time"]
    assert (found["hop"].n, found["hop"].failed, found["hop"].mean) == (6, 1, 3 / 6)
    assert (found["time"].n, found["time"].mean) == (1, 0.0)
    assert by_category([group(1.0)]) == {}


def test_what_a_judge_failed_to_measure_is_in_no_mean():
    """A 0 would say that the agent was wrong."""
    lost = Failure("judge", "Timeout", "", "measurement")
    groups = [group(1.0, 0.0), group(None, 1.0)]
    groups[0].append(Episode(TASK, 2, failure=lost))
    groups.append([Episode(TASK, 0, failure=lost)])
    found = accuracy(groups)
    assert (found.n, found.failed, found.unmeasured, found.mean) == (4, 1, 2, 0.5)
    none = accuracy([[Episode(TASK, 0, failure=lost)]])
    assert (none.n, none.unmeasured) == (0, 1) and math.isnan(none.mean)

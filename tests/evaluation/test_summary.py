"""Means with intervals, paired comparisons and costs, against values worked out by hand."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import UserError
from recollect.evaluation import summary
from recollect.evaluation.costs import Prices, Spending, parse_prices
from recollect.evaluation.scoring import Scored, axes, check_metrics, score_record
from recollect.metrics import wilson
from recollect.tasks.documents.hotpotqa import HotpotQA
from recollect.types import Question
from tests.support.made_up_hotpot import build, write_source


def answer(task_id: str, score: float, *, agent="a", seed=0, index=0, failed=False, **more):
    return Scored("t", agent, seed, index, more.get("q", 0), task_id, failed, (score,), ())


def test_one_answer_per_task_gets_wilsons_interval_and_failures_are_counted():
    answers = [answer(f"t{i}", float(i < 3), failed=i == 9) for i in range(10)]
    score = summary.score(answers, 0)
    assert (score.mean, score.n, score.n_failed, score.n_tasks) == (0.3, 10, 1, 10)
    assert (score.low, score.high) == wilson(3, 10) and score.interval == "wilson"


def test_several_answers_per_task_are_no_independent_draws():
    """Twenty answers of two tasks that differ say little; of twenty tasks they say more."""
    clustered = [answer(f"t{i % 2}", float(i % 2)) for i in range(20)]
    single = [answer(f"t{i}", float(i % 2)) for i in range(20)]
    few, many = summary.score(clustered, 0), summary.score(single, 0)
    assert few.mean == many.mean == 0.5
    assert few.interval == "bootstrap" and few.n_tasks == 2
    assert few.high - few.low > many.high - many.low


def test_agreement_of_few_tasks_is_no_certainty():
    """Three seeds of two tasks, all wrong: a bootstrap alone would be sure of 0."""
    score = summary.score([answer(f"t{i % 2}", 0.0, seed=i) for i in range(6)], 0)
    assert score.mean == score.low == 0 and score.high == wilson(0, 2)[1] > 0.6


def test_intervals_cover_the_truth_as_often_as_they_say():
    """Tasks have a luck of their own, which every one of their four answers shares."""
    random = Random(0)
    covered = 0
    for _ in range(150):
        answers = []
        for task in range(30):
            luck = random.random()
            answers += [answer(f"t{task}", float(random.random() < luck)) for _ in range(4)]
        score = summary.score(answers, 0, 400)
        covered += score.low <= 0.5 <= score.high
    assert 0.88 <= covered / 150 <= 0.99


def test_seeds_give_the_spread():
    answers = [answer("t", s, seed=i) for i, s in enumerate((0.2, 0.4, 0.6))]
    means, spread = summary.by_seed(answers, 0)
    assert means == {"0": 0.2, "1": 0.4, "2": 0.6} and spread == pytest.approx(0.2)
    assert summary.by_seed(answers[:1], 0)[1] is None


def test_comparisons_are_paired_by_task():
    """Both get half of the tasks, one always a little better: only pairing can tell."""
    first = [answer(f"t{i}", 0.9 * (i % 2) + 0.1, index=i) for i in range(40)]
    second = [answer(f"t{i}", 0.9 * (i % 2), index=i) for i in range(40)]
    (found,) = summary.compare({"first": first, "second": second}, "t", 0, "f1")
    assert found.difference == pytest.approx(0.1) and found.n_tasks == 40
    assert found.low == pytest.approx(0.1) and found.p < 1e-3
    (same,) = summary.compare({"first": first, "copy": list(reversed(first))}, "t", 0, "f1")
    assert same.difference == 0 and same.p == 1


def test_seeds_of_one_task_are_one_pair():
    """Six seeds of one task are one task: nothing can be shown by it."""
    first = [answer("t", 1.0, seed=i) for i in range(6)]
    second = [answer("t", 0.0, seed=i) for i in range(6)]
    (found,) = summary.compare({"a": first, "b": second}, "t", 0, "em")
    assert found.n_tasks == 1 and found.p == 1


def test_holms_correction_by_hand():
    # 0.01 * 3, then 0.03 * 2, then 0.04 * 1 which may not fall below what came before.
    assert summary.holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert summary.holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_never_lowers_a_p_value_and_keeps_the_order(values):
    adjusted = summary.holm(values)
    assert all(p <= a <= 1 for p, a in zip(values, adjusted, strict=True))
    order = np.argsort(values, kind="stable")
    assert all(np.diff(np.array(adjusted)[order]) >= 0)


def test_the_worst_answers_are_those_that_others_got_right():
    mine = [answer(f"t{i}", s, index=i) for i, s in enumerate((1.0, 0.0, 0.0, 0.5))]
    theirs = [answer(f"t{i}", s, index=i) for i, s in enumerate((1.0, 0.0, 1.0, 1.0))]
    found = summary.worst({"mine": mine, "theirs": theirs}, "mine", 0, 5)
    assert [(a.index, others) for a, others in found] == [(2, 1.0), (3, 1.0), (1, 0.0)]


@pytest.mark.parametrize(
    ("evidence", "chunks", "expected"),
    [
        ((), 9, {}),
        ((0,), 2, {}),
        ((2,), 9, {"position": "first"}),
        ((3,), 9, {"position": "middle"}),
        ((8,), 9, {"position": "last"}),
        ((0, 8), 9, {"position": "spread", "distance": "far", "order": "in order"}),
        ((8, 7), 9, {"position": "last", "distance": "near", "order": "out of order"}),
        ((4, 4), 9, {"position": "middle", "distance": "near"}),
    ],
)
def test_where_the_evidence_stands(evidence, chunks, expected):
    assert axes(Question("?", ("x",), "", evidence), chunks) == expected


def record(answers: list[str], failure=None, **more) -> dict:
    return {
        "id": "t|a|0|0",
        "task": "t",
        "agent": "a",
        "seed": 0,
        "index": 0,
        "task_id": "x",
        "meta": {},
        "chunks": 3,
        "failure": failure,
        "questions": [
            {"text": "Who?", "answers": ["Ada"]},
            {"text": "Where?", "answers": ["Oslo"]},
        ],
        "answers": answers,
        "seconds": 2.0,
        "memory": {"chars": 40, "tokens": 10},
        "contexts": [
            {"role": "memory", "turns": [[100, 7, "stop", ""], [120, 3, "stop", ""]]},
            {"role": "answer", "turns": [[30, 2, "stop", ""]]},
        ],
        **more,
    }


def test_every_question_of_a_failed_episode_is_wrong():
    names = ["exact_match", "sub_exact_match"]
    right = list(score_record(record(["\\boxed{Ada}", "in Oslo"]), names))
    assert [a.scores for a in right] == [(1.0, 1.0), (0.0, 1.0)]
    failure = {"boundary": "policy", "kind": "TimeoutError", "message": ""}
    wrong = list(score_record(record(["Ada", "Oslo"], failure), names))
    assert [(a.scores, a.failed) for a in wrong] == [((0.0, 0.0), True)] * 2


def test_seeds_that_ask_the_same_are_one_task(tmp_path):
    """HotpotQA's held-out questions are the same for every seed, only their documents differ."""
    build(write_source(tmp_path, test=4, others=50), tmp_path / "hotpotqa")
    family = HotpotQA(tmp_path / "hotpotqa", documents=20)
    answers = []
    for seed in range(3):
        for index in range(4):
            task = family.task(index, seed, "test")
            said = ["blue", ""]
            own = record(said, seed=seed, index=index, task_id=task.id, meta=task.meta)
            answers += score_record(own, ["exact_match"])
    found = summary.score(answers, 0)
    assert (found.n, found.n_tasks) == (24, 4)
    assert len({answer.task_id for answer in score_record(record(["", ""]), [])}) == 1


def test_a_stored_question_still_asks_for_all_of_its_answers():
    question = {"text": "Which?", "answers": ["Ada", "Bob"], "every": True}
    own = record(["Ada", "Bob and Ada"], questions=[question, question])
    assert [a.scores for a in score_record(own, ["exact_match"])] == [(0.0,), (1.0,)]


def test_a_list_of_everything_is_cut_to_its_end():
    everything = "Ada " + "Bob " * 2000
    (first, _second) = score_record(record([everything, "x"]), ["sub_exact_match"])
    assert first.scores == (0.0,)


def test_a_metric_that_is_none_is_refused():
    check_metrics(["exact_match", "judge"])
    with pytest.raises(UserError, match="no metric 'bleu'"):
        check_metrics(["bleu"])


def test_costs_are_parted_by_role_and_priced():
    spending = Spending()
    spending.add(record(["", ""]))
    spending.add(record(["", ""], memory={"chars": 60, "tokens": 20}))
    spending.add(record([], {"boundary": "policy"}, memory={}, contexts=[]))
    cost = spending.cost(Prices(2.0, 10.0))
    assert (cost.episodes, cost.questions, cost.calls) == (3, 6, 6)
    assert (cost.build_read, cost.build_written, cost.build_calls) == (440, 20, 4)
    assert (cost.answer_read, cost.answer_written, cost.answer_calls) == (60, 4, 2)
    assert (cost.memory_tokens, cost.memory_chars, cost.seconds) == (15, 50, 6)
    assert cost.dollars == pytest.approx((500 * 2 + 24 * 10) / 1e6)
    assert spending.cost(None).dollars is None


def test_prices_are_two_numbers():
    assert parse_prices("0.15,0.6") == Prices(0.15, 0.6) and parse_prices("") is None
    for wrong in ("1", "1,2,3", "a,b", "-1,2"):
        with pytest.raises(UserError, match="no prices"):
            parse_prices(wrong)

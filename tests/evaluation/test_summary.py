"""Means with intervals, paired comparisons and costs, against values worked out by hand."""

from __future__ import annotations

from random import Random

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
    cluster = more.get("cluster", task_id)
    given = more.get("unanswerable", False)
    return Scored(
        "t", agent, seed, index, more.get("q", 0), task_id, cluster, failed, (score,), (), given
    )


def test_one_answer_per_task_gets_wilsons_interval_and_failures_are_counted():
    answers = [answer(f"t{i}", float(i < 3), failed=i == 9) for i in range(10)]
    score = summary.score(answers, 0)
    assert (score.mean, score.n, score.n_failed, score.n_tasks) == (0.3, 10, 1, 10)
    assert (score.low, score.high) == wilson(3, 10) and score.interval == "wilson"


def test_several_answers_per_task_are_no_independent_draws():
    """Twenty answers of two tasks that differ say little; of twenty tasks they say more."""
    clustered = [answer(f"t{i % 2}", float(i % 2), q=i) for i in range(20)]
    single = [answer(f"t{i}", float(i % 2)) for i in range(20)]
    few, many = summary.score(clustered, 0), summary.score(single, 0)
    assert few.mean == many.mean == 0.5
    assert few.interval == "clusters" and few.n_tasks == few.n_clusters == 2
    assert few.high - few.low > many.high - many.low


def test_tasks_of_one_conversation_are_no_independent_draws():
    """The same answers, one question a task: of two conversations, of twenty."""
    joined = [answer(f"t{i}", float(i % 2), cluster=f"c{i % 2}") for i in range(20)]
    score = summary.score(joined, 0)
    assert (score.n, score.n_tasks, score.n_clusters) == (20, 20, 2)
    alone = summary.score([answer(f"t{i}", float(i % 2)) for i in range(20)], 0)
    assert score.high - score.low > 1.5 * (alone.high - alone.low)


def test_agreement_of_few_tasks_is_no_certainty():
    """Three seeds of two tasks, all wrong: they are no more than two answers."""
    score = summary.score([answer(f"t{i % 2}", 0.0, seed=i) for i in range(6)], 0)
    assert score.mean == score.low == 0 and score.high >= wilson(0, 2)[1] > 0.6


def test_the_headline_leaves_out_what_giving_up_answers():
    """Half of the questions have no answer: who always gives up is right in these alone."""
    answers = [answer(f"t{i}", float(i % 2), unanswerable=i % 2 == 1) for i in range(20)]
    counted = summary.answerable(answers)
    assert summary.score(counted, 0).mean == 0.0 and len(counted) == 10
    only = [answer(f"t{i}", 1.0, unanswerable=True) for i in range(4)]
    assert summary.answerable(only) == only


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
    assert found.difference == pytest.approx(0.1) and found.n_tasks == found.n_clusters == 40
    assert 0 < found.low < 0.1 < found.high and found.p < 1e-3
    (same,) = summary.compare({"first": first, "copy": list(reversed(first))}, "t", 0, "f1")
    assert same.difference == 0 and same.p == 1 and same.low < 0 < same.high


def test_the_difference_that_is_printed_is_tested():
    """One long conversation is better by 0.3, nineteen short ones are worse by 0.27.

    By answers the first agent is ahead, by conversations the second. Of these, one was printed and
    the other tested.
    """
    first, second = [], []
    for i in range(20):
        for q in range(400 if i == 0 else 1):
            high, low = (0.8, 0.5) if i == 0 else (0.5, 0.77)
            first.append(answer(f"t{i}", high, index=i, q=q))
            second.append(answer(f"t{i}", low, index=i, q=q))
    (found,) = summary.compare({"first": first, "second": second}, "t", 0, "f1")
    assert found.difference > 0.25
    # One conversation decides it, so nothing is shown, by the interval or by the test.
    assert found.p > 0.5 and found.low < 0 < found.high


def test_seeds_of_one_task_are_one_pair():
    """Six seeds of one task are one task: nothing can be shown by it."""
    first = [answer("t", 1.0, seed=i) for i in range(6)]
    second = [answer("t", 0.0, seed=i) for i in range(6)]
    (found,) = summary.compare({"a": first, "b": second}, "t", 0, "em")
    assert found.n_tasks == 1 and found.p == 1 and found.low <= 0


@given(st.randoms())
def test_no_order_of_the_answers_changes_a_digit(random):
    """Episodes end in another order every time, and a resumed evaluation appends the rest."""
    own = Random(5)
    scores = {
        agent: [
            answer(f"t{i // 3}", own.random(), agent=agent, index=i // 3, q=i % 3, seed=i % 2)
            for i in range(60)
        ]
        for agent in ("a", "b")
    }
    mixed = {agent: random.sample(answers, len(answers)) for agent, answers in scores.items()}
    assert summary.score(mixed["a"], 0) == summary.score(scores["a"], 0)
    assert summary.by_seed(mixed["a"], 0) == summary.by_seed(scores["a"], 0)
    assert summary.compare(mixed, "t", 0, "f1") == summary.compare(scores, "t", 0, "f1")
    assert summary.worst(mixed, "a", 0, 3) == summary.worst(scores, "a", 0, 3)


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
    assert len({answer.item for answer in score_record(record(["", ""]), [])}) == 1


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
        with pytest.raises(UserError, match="not prices"):
            parse_prices(wrong)

"""Rewards for answers and tools, by hand; who is compared with whom; which number is right."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.advantages import group_advantages, grpo, rloo
from recollect.errors import UserError
from recollect.memory.text import TextMemory
from recollect.metrics import value_match
from recollect.rewards.answers import AnswerAndTools, AnswerReward, WithMemoryRecall, memory_recall
from recollect.rewards.base import Score
from recollect.rewards.readers import MetricScorer
from recollect.types import Context, Episode, Failure, Question, Task, Turn


def chat(label: str = "memory", calls: int = 0, ok: int = 0, question: int | None = None):
    counts = {"calls": calls, "ok": ok} if calls else {}
    turn = Turn(1, (7,), (-1.0,), "stop")
    return Context(
        "memory", label, ids=[1, 7], turns=[turn], question=question, label=label, counts=counts
    )


def episode(answers: list[str], *contexts: Context, golds: list[str] | None = None) -> Episode:
    golds = golds or ["5.00"] * len(answers)
    questions = tuple(Question(f"{i}?", (gold,)) for i, gold in enumerate(golds))
    return Episode(Task("t", (), questions), 0, list(contexts), answers=answers)


def scored(one: Episode, reward=AnswerAndTools()) -> Score:
    score = asyncio.run(reward(one, TextMemory()))
    for context, own in zip(one.contexts, score.contexts, strict=True):
        context.reward = own
    one.reward = score.reward
    return score


def test_where_all_answers_are_asked_for_one_earns_nothing():
    """As in the evaluation: training must not reward half a list."""
    asked = Question("Which two?", ("Rome", "Oslo"), every=True)
    for answer, reward in ((r"\boxed{Rome}", 0.0), (r"\boxed{Oslo, Rome}", 1.0)):
        one = Episode(Task("t", (), (asked,)), 0, [chat()], answers=[answer])
        assert scored(one, AnswerReward("boxed_match")).reward == reward
        assert scored(one, AnswerReward("boxed_exact_match")).reward == reward
        said = asyncio.run(MetricScorer(value_match)(asked, answer))
        assert said == reward


def test_by_hand():
    one = episode(
        ["\\boxed{5}", "it is 5.00", "\\boxed{45.00}"],
        chat(calls=4, ok=1),
        chat(),
        *(chat(f"q{i}", calls=2, ok=i, question=i) for i in range(3)),
    )
    score = scored(one)
    # outcomes 1.5, 1.0 and 0.5: mean 1. Shares 1/4, none, 0/2, 1/2, 2/2: mean 0.35.
    assert score.contexts == pytest.approx([1.125, 1.0, 1.5, 1.25, 1.0])
    assert score.reward == pytest.approx(1 + 0.5 * 0.35)
    assert score.answers == [1.0, 1.0, 0.0]
    assert score.parts["answer"] == pytest.approx(2 / 3)
    assert score.parts["boxed"] == pytest.approx(2 / 3)
    assert score.parts["tools/success"] == pytest.approx(0.35)
    assert (score.parts["tools/calls"], score.parts["turns"]) == (10, 5)


@pytest.mark.parametrize("learns", ["memory", "q0"])
def test_tool_calls_of_a_fixed_model_are_in_no_statistic(learns):
    """Whatever it does with tools, the episode's figures stay; who learns keeps its own reward."""

    def score(**fixed: int) -> Score:
        chats = [chat(calls=4, ok=1), chat("q0", calls=4, ok=1, question=0)]
        for one in chats:
            if one.label != learns:
                one.trainable, one.counts = False, fixed
        return scored(episode(["\\boxed{5}"], *chats))

    idle, busy = score(), score(calls=9, ok=9, malformed=3)
    assert (idle.reward, idle.parts) == (busy.reward, busy.parts)
    assert idle.reward == pytest.approx(1.5 + 0.5 / 4) and idle.parts["tools/calls"] == 4
    assert idle.parts["turns"] == 1


def test_where_nobody_learns_all_are_counted():
    chats = [chat(calls=2, ok=2), chat("q0", calls=2, question=0)]
    for one in chats:
        one.trainable = False
    assert scored(episode(["\\boxed{5}"], *chats)).parts["tools/success"] == 0.5


def test_weights_are_settings_and_none_leaves_the_answers():
    contexts = [chat(calls=2, ok=1), chat("q0", question=0)]
    plain = scored(episode(["\\boxed{5}"], *contexts), AnswerAndTools(value_match, 0, 0))
    assert list(plain.contexts) == [1.0, 1.0] and plain.reward == 1.0
    old = scored(episode(["\\boxed{5}"], *contexts), AnswerReward(value_match))
    assert (old.reward, old.answers) == (1.0, [1.0])


@pytest.mark.parametrize("answer", ["\\boxed{}", "\\boxed{ }", "5", "", "\\boxed{5"])
def test_an_empty_or_open_box_is_none(answer):
    assert scored(episode([answer], chat())).parts["boxed"] == 0.0


def test_a_box_counts_wherever_it_stands():
    assert scored(episode(["\\boxed{5}" + " so" * 200], chat())).reward == 1.5


def test_a_task_without_questions_is_refused():
    with pytest.raises(UserError, match="has no questions"):
        scored(episode([], chat()))


# Who is compared with whom


def test_an_episode_counts_once_however_many_chunks_it_had():
    """Two chunks against four, with a failed sibling that is in no statistic."""
    short = episode(["\\boxed{5}"], chat(calls=1, ok=1), chat(), chat("q", question=0))
    long = episode(["no"], chat(), chat(), chat(), chat(calls=1, ok=1), chat("q", question=0))
    lost = episode(["\\boxed{5}"], *(chat(calls=1, ok=1) for _ in range(9)))
    for one in (short, long, lost):
        scored(one)
    lost.failure = Failure("policy", "ConnectionError", "gone")
    # memory: short 2.0 and 1.5, mean 1.75; long 0, 0, 0 and 0.5, mean 0.125. Baseline 0.9375.
    # Had every chunk counted, the baseline would have been 4 / 6.
    got = group_advantages([short, lost, long], grpo)
    assert got[0] == pytest.approx([1.0625, 0.5625, 0.75])
    assert got[1] == [0.0] * 9
    assert got[2] == pytest.approx([-0.9375, -0.9375, -0.9375, -0.4375, -0.75])
    left_one_out = group_advantages([short, long], rloo)
    assert left_one_out[0] == pytest.approx([2.0 - 0.125, 1.5 - 0.125, 1.5])
    # By the deviation of the two means: sqrt(2) * 0.8125.
    by_std = group_advantages([short, long], partial(grpo, by_std=True))
    assert by_std[0][0] == pytest.approx(1.0625 / (2**0.5 * 0.8125 + 1e-6))


def test_questions_are_compared_with_themselves():
    """A hard question that one sibling got right teaches; an easy one that all got does not."""

    def one(*answers: str) -> Episode:
        made = episode(list(answers), chat(), chat("q1", question=0), chat("q2", question=1))
        scored(made)
        return made

    group = [one("\\boxed{5}", "\\boxed{5}"), one("\\boxed{5}", "\\boxed{6}")]
    assert group_advantages(group, grpo) == [[0.25, 0.0, 0.5], [-0.25, 0.0, -0.5]]


@given(st.lists(st.integers(1, 5), min_size=2, max_size=5))
def test_equal_outcomes_teach_nothing_whatever_the_number_of_chunks(chunks):
    group = []
    for n in chunks:
        one = episode(["\\boxed{5}"], *(chat(calls=3, ok=1) for _ in range(n)))
        scored(one)
        group.append(one)
    assert not any(a for own in group_advantages(group, grpo) for a in own)


# Numbers are numbers


@pytest.mark.parametrize(
    ("said", "gold", "right"),
    [
        ("\\boxed{5.00}", "5.00", True),
        ("\\boxed{5}", "5.00", True),
        ("\\boxed{$5.00}", "5.00", True),
        ("\\boxed{\\$1,234.50}", "1234.50", True),
        ("\\boxed{1{,}234.5}", "1234.50", True),
        ("\\boxed{+5.0}", "5.00", True),
        ("The total is 5.00.", "5.00", True),
        ("12.00 on Dining and 5.00", "5.00", False),
        ("\\boxed{45.00}", "5.00", False),
        ("\\boxed{5.001}", "5.00", False),
        ("\\boxed{-5.00}", "5.00", False),
        ("\\boxed{-$5.00}", "5.00", False),
        ("\\boxed{-\\$5.00}", "5.00", False),
        ("\\boxed{-$5.00}", "-5.00", True),
        ("\\boxed{$3-$5}", "-5", False),
        ("\\boxed{5.00.1}", "5.00", False),
        ("\\boxed{5.00 or 6.00}", "5.00", False),
        ("\\boxed{5.00, 6.00}", "5.00", False),
        ("\\boxed{500}", "5.00", False),
        ("\\boxed{0.05e2}", "5.00", False),
        ("\\boxed{}", "5.00", False),
        ("", "5.00", False),
        ("\\boxed{2023-05-00}", "5.00", False),
        ("\\boxed{1234,50}", "1234.50", False),
        ("\\boxed{Dining}", "Dining", True),
        ("\\boxed{dining, other}", "Dining, Other", True),
        ("\\boxed{Other and Dining}", "Dining, Other", True),
        ("\\boxed{Dining}", "Dining, Other", False),
        ("\\boxed{Dining, Other, Medical}", "Dining, Other", False),
        ("\\boxed{2023-01-05}", "2023-01-05", True),
        ("\\boxed{2023-01-05, 2023-02-05}", "2023-01-05", False),
        ("\\boxed{12023-01-05}", "2023-01-05", False),
        ("\\boxed{2023-01-06}", "2023-01-05", False),
    ],
)
def test_adversarial_values(said, gold, right):
    assert value_match(said, (gold,)) == float(right)


@given(st.integers(1, 10**7), st.integers(1, 10**7))
def test_two_amounts_match_only_if_they_are_equal(first, second):
    text, gold = (f"{cents // 100}.{cents % 100:02d}" for cents in (first, second))
    assert value_match(f"\\boxed{{{text}}}", (gold,)) == float(first == second)


def test_a_step_earns_what_it_added_to_the_memory():
    questions = (Question("?", ("Paris, France", "Lutetia")), Question("?", ("42",)))
    assert memory_recall("it is in france", questions) == 0.25  # half of one answer, none of two
    assert memory_recall("Lutetia and 42", questions) == 1.0
    task = Task("t", (), questions)
    memory = TextMemory()
    for number, text in enumerate(["France", "France: Paris; 42", "42"], 1):
        memory.replace(text, label=f"chunk {number}")
    contexts = [Context("memory", label=f"chunk {n}") for n in (1, 2, 3)]
    contexts += [Context("answer", question=i, label=f"question {i + 1}") for i in (0, 1)]
    done = Episode(task, 0, contexts, memory.ops, ["no", r"\boxed{42}"])
    score = asyncio.run(WithMemoryRecall(AnswerReward())(done, memory))
    assert [step.get("memory_recall") for step in score.steps] == [0.25, 0.75, -0.5, None, None]
    assert (score.reward, score.parts["memory_recall"]) == (0.5, 0.5)

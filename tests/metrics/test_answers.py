"""Scores against hand-worked values, adversarial strings and what must hold for any string."""

from __future__ import annotations

import re
import string
from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect import metrics
from recollect.config.presets import PRESETS
from recollect.metrics import (
    METRICS,
    boxed,
    boxed_exact_match,
    boxed_match,
    exact_match,
    final_answer,
    normalise,
    numeric_match,
    rouge_l,
    score_question,
    sub_exact_match,
    token_f1,
    value_match,
)
from recollect.metrics import answers as answers_module
from recollect.rewards.answers import AnswerReward
from recollect.types import Question

SCORES = [
    exact_match,
    token_f1,
    sub_exact_match,
    rouge_l,
    boxed_match,
    numeric_match,
    value_match,
]
ASCII = st.text(alphabet=string.printable, max_size=60)
WORDS = st.lists(st.sampled_from(["the", "a", "red", "fox", "5.00", "45.00", "-3", "to"]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel\tTower!", "eiffel tower"),
        ("an Apple, a day", "apple day"),
        ("U.S.A.", "usa"),
        ("theatre", "theatre"),
        ("", ""),
        ("The", ""),
        ("\uff21\uff22\uff23 \uff11\uff12", "abc 12"),  # full-width ABC 12
        ("\u201cquoted\u201d \u2014 it\u2019s", "quoted its"),
        ("o\ufb03ce", "office"),  # the ffi ligature
        ("zero\u200bwidth", "zerowidth"),
        ("cafe\u0301", "caf\u00e9"),
        ("\u6771\u4eac\u3002", "\u6771\u4eac"),
    ],
)
def test_normalise(text: str, expected: str) -> None:
    assert normalise(text) == expected


def squad_normalise(text: str) -> str:
    """The published rule, word for word: lower, punctuation, articles, whitespace."""
    lowered = text.lower()
    bare = "".join(char for char in lowered if char not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


@given(ASCII, ASCII)
def test_exact_match_and_f1_agree_with_squad(prediction: str, answer: str) -> None:
    found, gold = squad_normalise(prediction), squad_normalise(answer)
    assert normalise(prediction) == found
    assert exact_match(prediction, (answer,)) == float(found == gold != "")
    common = sum((Counter(found.split()) & Counter(gold.split())).values())
    if common:
        precision, recall = common / len(found.split()), common / len(gold.split())
        expected = 2 * precision * recall / (precision + recall)
    else:
        expected = 0.0
    assert token_f1(prediction, (answer,)) == pytest.approx(expected)


def test_token_f1_by_hand() -> None:
    # common: cat, sat; 2/3 of the prediction, 2/4 of the answer
    assert token_f1("the cat sat down", ("a cat sat quite still",)) == pytest.approx(4 / 7)
    assert token_f1("cat cat cat", ("cat",)) == pytest.approx(1 / 2)
    assert token_f1("cat", ("dog", "the cat")) == 1.0


@pytest.mark.parametrize(
    ("prediction", "answer", "expected"),
    [
        ("It is the Eiffel Tower, in Paris.", "Eiffel tower", 1),
        ("Eiffel", "Eiffel Tower", 0),
        ("", "Paris", 0),
        ("the", "the", 0),
        ("anything", "", 0),
        ("anything", "the", 0),
        ("Parisian", "Paris", 0),
        ("cart", "art", 0),
        ("45.00", "5.00", 0),
        ("500", "5.00", 0),
        ("it was $5.00.", "5.00", 1),
        ("(5.00)", "5.00", 1),
        ("5.00-6.00", "5.00", 0),
        ("5.001", "5.00", 0),
        ("-5.00", "5.00", 0),
        ("\u22125.00", "-5.00", 1),
        (".5", "5", 0),
        ("1,234.50 in all", "1234.50", 1),
        ("1, 2 and 3", "2", 1),
        ("1,2,3", "2", 1),
        ("covid-19", "19", 0),
        ("the 5th", "5", 0),
        ("well...5", "5", 1),
        ("2023-01-05", "01", 0),
        ("on 2023-01-05", "2023-01-05", 1),
        ("2010\u20132012", "2010-2012", 1),
        ("a b", "b c", 0),
    ],
)
def test_sub_exact_match(prediction: str, answer: str, expected: int) -> None:
    assert sub_exact_match(prediction, (answer,)) == expected


def test_rouge_l_by_hand() -> None:
    # police ... gunman: "police the gunman" is common, 3 of 4 and 3 of 4
    assert rouge_l("police kill the gunman", ("police killed the gunman",)) == pytest.approx(3 / 4)
    assert rouge_l("the gunman kill police", ("police killed the gunman",)) == pytest.approx(2 / 4)
    assert rouge_l("", ("police",)) == 0.0


@given(*[st.lists(st.sampled_from("abcd"), max_size=12)] * 2)
def test_longest_common_subsequence_agrees_with_the_table(first: list, second: list) -> None:
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, j in product(range(len(first)), range(len(second))):
        same = first[i] == second[j]
        table[i + 1][j + 1] = table[i][j] + 1 if same else max(table[i][j + 1], table[i + 1][j])
    assert answers_module._lcs_length(first, second) == table[-1][-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{Paris}.", "Paris"),
        (r"\boxed{a} then \boxed{b}", "b"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{}", ""),
        (r"\boxed {x}", "x"),
        (r"$\boxed 7$ is right", "7"),
        (r"\fbox{seven}", "seven"),
        (r"\boxed{a} \fbox{b}", "a"),
        (r"\boxed{a} \boxed{never closed", None),
        (r"\boxed{a{b}", None),
        (r"\boxed", None),
        (r"\boxed ", None),
        ("boxed{Paris}", None),
        ("Paris", None),
    ],
)
def test_boxed(text: str, expected: str | None) -> None:
    assert boxed(text) == expected


@given(st.text(alphabet="ab {}", max_size=20), st.text(alphabet="xy $", max_size=10))
def test_boxed_returns_what_was_boxed(content: str, around: str) -> None:
    balanced = content.replace("{", "").replace("}", "") + "{}" * content.count("{")
    assert boxed(f"{around}\\boxed{{{balanced}}}{around}") == balanced


BOTH = [
    (r"The answer is \boxed{New York}", "new york", 1),
    (r"\boxed{NewYork}", "New York", 1),  # all spaces go, as in the reference
    (r"\boxed{the Beatles}", "Beatles", 0),  # articles stay
    (r"\boxed{Beatles.}", "Beatles", 0),
    (r"\boxed{100\%}", "100", 1),
    (r"\boxed{90^\circ}", "90", 1),
    (r"\boxed{\dfrac{1}{2}}", r"\frac{1}{2}", 1),
    (r"\boxed{\left(1\right)}", "(1)", 1),
    (r"\boxed Paris$ and more", "Paris", 1),
    ("New York", "New York", 0),
    (r"\boxed{45.00}", "5.00", 0),
    (r"\boxed{Paris", "Paris", 0),
    (r"\boxed{Paris}" + " " * 287, "Paris", 1),
    (r"\boxed{Paris}" + " " * 288, "Paris", 0),  # the box begins before the last 300 characters
]
APART = [
    (r"\fbox{Paris}", "Paris", 0, 1),
    (r"\boxed{5 \text{ cm}}", "5", 0, 1),
    (r"\boxed{k = 5}", "5", 0, 1),
    (r"\boxed{100%}", "100", 0, 1),
    (r"\boxed{$5$}", "5", 0, 1),
    (r"\boxed{\$5.00}", "$5.00", 0, 1),
    (r"\boxed{.5}", "0.5", 0, 1),
    (r"\boxed{\frac{.5}{2}}", r"\frac{0.5}{2}", 1, 1),
    (r"\boxed {Paris}", "Paris", 0, 1),  # published: what follows "\boxed ", braces and all
    (r"\boxed {Paris}", "{Paris}", 1, 0),
    (r"\boxed Rome, no: \boxed{Paris}", "Paris", 0, 1),
    (r"\boxed{}", "", 1, 0),
]
"""Where MemAgent's reward and the wider one differ: prediction, answer, published, wider."""


@pytest.mark.parametrize(("prediction", "answer", "expected"), BOTH)
def test_boxed_answers(prediction: str, answer: str, expected: int) -> None:
    assert boxed_exact_match(prediction, ("no such answer", answer)) == expected
    assert boxed_match(prediction, ("no such answer", answer)) == expected


@pytest.mark.parametrize(("prediction", "answer", "published", "wider"), APART)
def test_memagents_reward_and_the_wider_one(
    prediction: str, answer: str, published: int, wider: int
) -> None:
    assert boxed_exact_match(prediction, ("no such answer", answer)) == published
    assert boxed_match(prediction, ("no such answer", answer)) == wider


def test_presets_say_which_box_they_reward() -> None:
    by_preset = {
        name: config.reward.metric
        for name, config in PRESETS.items()
        if isinstance(config.reward, AnswerReward)
    }
    papers = {"hotpotqa", "callback", "gated", "parallel"}
    assert {n for n, metric in by_preset.items() if metric == "boxed_exact_match"} >= papers
    ours = {"demo", "recall", "chronicle", "squad", "babilong", "short_diary", "two_stage"}
    assert {n for n, metric in by_preset.items() if metric == "boxed_match"} == ours


EVERY = Question("Which two?", ("Rome", "Oslo"), every=True)


@pytest.mark.parametrize("name", sorted(METRICS))
def test_where_all_answers_are_asked_for_one_is_not_enough(name: str) -> None:
    metric = METRICS[name]
    whole = r"\boxed{Oslo, Rome}" if "box" in name else "Rome and Oslo"
    half = r"\boxed{Rome}" if "box" in name else "Rome"
    one = Question("Which?", EVERY.answers)
    if name == "numeric_match":
        return  # neither is a number
    assert score_question(metric, half, EVERY) < score_question(metric, whole, EVERY)
    assert score_question(metric, half, one) == metric(half, one.answers)
    if name not in ("token_f1", "stemmed_f1", "rouge_l"):  # these count the order or the "and"
        assert score_question(metric, whole, EVERY) == 1
    assert score_question(metric, half, EVERY) < 1


def test_a_metric_of_ones_own_must_find_every_answer_too() -> None:
    def holds(reply: str, answers: tuple[str, ...]) -> float:
        return float(any(answer in reply for answer in answers))

    assert score_question(holds, "Rome", EVERY) == 0
    assert score_question(holds, "Oslo, then Rome", EVERY) == 1


@pytest.mark.parametrize(
    ("prediction", "answer", "expected"),
    [
        ("45.00", "5.00", 0),
        ("5", "5.00", 1),
        ("$1,234.50", "1234.5", 1),
        ("You spent 12.50 on 2023-01-05.", "12.50", 1),
        ("first 3, then 5", "5", 0),  # hedging: of two numbers neither is the answer
        ("first 3, then 5", "3", 0),
        ("3 or 5", "5", 0),
        ("3-5", "5", 0),
        ("3 to 5", "5", 0),
        ("2 + 3 makes it\nAnswer: 5", "5", 1),
        (r"\boxed{3 or 5}", "5", 0),
        (r"12 things, so \boxed{\$5.00}", "5", 1),
        (r"\boxed{1{,}234}", "1234", 1),
        ("-5", "5", 0),
        ("\uff15", "5", 1),
        ("0.1", "0.10000000000000001", 0),
        ("none", "5", 0),
        ("5", "Windows 5", 0),
        ("5", "", 0),
        ("", "5", 0),
    ],
)
def test_numeric_match(prediction: str, answer: str, expected: int) -> None:
    assert numeric_match(prediction, (answer,)) == expected


@pytest.mark.parametrize(
    ("prediction", "answer", "expected"),
    [
        (r"\boxed{5}", "5.00", 1),
        ("Shopping, Dining", "Dining, Shopping", 1),
        ("Dining and Shopping", "Dining, Shopping", 1),
        ("Dining", "Dining, Shopping", 0),
        ("Dining, Shopping, Medical", "Dining, Shopping", 0),
        (r"\boxed{2023-01-05}", "2023-01-05", 1),
        ("2023-01-06", "2023-01-05", 0),
        ("", "", 0),
        ("the", "the", 0),
    ],
)
def test_value_match(prediction: str, answer: str, expected: int) -> None:
    assert value_match(prediction, (answer,)) == expected


@pytest.mark.parametrize("score", SCORES)
@given(st.text(max_size=80), st.lists(st.text(max_size=40), max_size=3))
def test_any_score_is_in_range_and_best_over_answers(
    score: metrics.Metric, prediction: str, answers: list[str]
) -> None:
    together = score(prediction, tuple(answers))
    assert 0.0 <= together <= 1.0
    assert together == max((score(prediction, (answer,)) for answer in answers), default=0.0)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    "empty", ["", " ", "the", "A", "...", "\u200b", "\\boxed{}", "\\boxed{the}"]
)
def test_nothing_matches_nothing(score: metrics.Metric, empty: str) -> None:
    assert score("", (empty,)) == 0.0
    assert score(empty, ("",)) == 0.0
    if score is not boxed_match:
        assert score("the", (empty,)) == 0.0
        assert score(empty, ("the",)) == 0.0


@given(WORDS, WORDS)
def test_sub_exact_match_is_a_run_of_tokens(prediction: list[str], answer: list[str]) -> None:
    found = [word for word in prediction if word not in ("the", "a")]
    gold = [word for word in answer if word not in ("the", "a")]
    runs = [found[i : i + len(gold)] for i in range(len(found))]
    expected = float(bool(gold) and gold in runs)
    assert sub_exact_match(" ".join(prediction), (" ".join(answer),)) == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (r"It was \boxed{Paris}, I think.", "Paris"),
        (r"\boxed{\text{Paris}}", "Paris"),
        (r"\boxed{ $\textbf{\mathrm{Paris}}$ }", "Paris"),
        (r"\boxed{\text{Paris} and \text{Rome}}", "Paris and Rome"),
        (r"\boxed{\$5.00}", r"\$5.00"),
        (r"\boxed{\textbf{Paris}}", "Paris"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ("  Paris.\n", "Paris."),
        (r"<think>\boxed{Rome}</think> Paris", "Paris"),
        (r"<think>maybe Rome</think> \boxed{Paris}", "Paris"),
        ("<think>never ends", ""),  # thinking is no answer, also if it was cut off
        ("<think>a</think>Paris<think>or", "Paris"),
        (r"\boxed{}", ""),
        ("", ""),
    ],
)
def test_final_answer(reply: str, expected: str) -> None:
    assert final_answer(reply) == expected

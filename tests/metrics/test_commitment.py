"""Final answers that commit themselves to one answer, and those that only hold it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.metrics import SCORES, answer_match, answer_overlap, answer_span, exact_match
from recollect.types import Question

FRUIT = Question("What is the latest favourite fruit that Maria named?", ("mango",))
OLDER = Question(
    "Which was founded first, Arthur's Magazine or First for Women?", ("Arthur's Magazine",)
)
SAME = Question("Were both painters from the same country?", ("no",))
BOATS = Question("How many boats did Ada buy in 2021?", ("3",))
SPENT = Question("How much did I spend in the category Dining on 2023-01-05?", ("12.50",))
NAMES = Question("Which three variables hold 12345?", ("VAR_A", "VAR_B", "VAR_C"), every=True)


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        (FRUIT, "mango"),
        (FRUIT, "Mango."),
        (FRUIT, "\\boxed{mango}"),
        (FRUIT, "**Answer:** mango\n\nI hope that this helps."),
        (FRUIT, "Maria's text names many.\nThe latest favourite fruit that she named is mango."),
        (FRUIT, "It is the mango."),
        (FRUIT, "first pear, then plum\n\\boxed{\\text{Mango}}"),
        (FRUIT, "<think>pear? plum?</think> mango"),
        (FRUIT, "\uff4d\uff41\uff4e\uff47\uff4f"),
        (OLDER, "Arthur's Magazine"),
        (OLDER, "It was Arthur's Magazine."),
        (SAME, "No."),
        (BOATS, "3"),
        (BOATS, "3.0"),
        (BOATS, "Ada bought 3 boats in 2021."),
        (SPENT, "You spent $12.50 on 2023-01-05."),
        (SPENT, "\u20ac12.5"),
        (NAMES, "VAR_C, VAR_A and VAR_B"),
        (NAMES, "The variables are VAR_A, VAR_B, VAR_C."),
    ],
)
def test_committed(question: Question, reply: str) -> None:
    assert answer_match(reply, question) == 1.0


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        (FRUIT, "mango or pear"),
        (FRUIT, "mango, pear"),
        (FRUIT, "mango pear"),
        (FRUIT, "mango/pear"),
        (FRUIT, "either mango"),
        (FRUIT, "not mango"),
        (FRUIT, "It isn't mango."),
        (FRUIT, "anything but mango"),
        (FRUIT, "mango\npear"),  # the last line is the answer
        (FRUIT, "\\boxed{mango} \\boxed{pear}"),
        (FRUIT, "\\boxed{pear} mango"),
        (FRUIT, "\\boxed{mango"),
        (FRUIT, "mangos"),
        (FRUIT, ""),
        (OLDER, OLDER.text),
        (OLDER, "Arthur's Magazine or First for Women"),
        (OLDER, "Arthur's Magazine, First for Women"),
        (OLDER, "First Arthur's Magazine"),  # a word of the other candidate
        (SAME, "I have no idea."),
        (SAME, "yes and no"),
        (SAME, "no yes"),
        (SAME, "No information available"),
        (BOATS, "3 or 4"),
        (BOATS, "3-4"),
        (BOATS, "3 to 4"),
        (BOATS, "between 3 and 4"),
        (BOATS, "at least 3"),
        (BOATS, "not 3"),
        (BOATS, "1, 2, 3, 4, 5"),
        (BOATS, "three or 3"),
        (BOATS, "-3"),
        (BOATS, "13"),
        (SPENT, "12.50 or 13.50"),
        (SPENT, "12.50 " + "and more words of a long text that tells everything " * 3),
        (NAMES, "VAR_A, VAR_B"),
        (NAMES, "VAR_A, VAR_B, VAR_C, VAR_D"),
        (NAMES, "not VAR_A, VAR_B, VAR_C"),
    ],
)
def test_not_committed(question: Question, reply: str) -> None:
    assert answer_match(reply, question) == 0.0


WORDS = st.sampled_from(["mango", "pear", "plum", "Maria", "fruit", "latest", "the", "is", "or"])


@given(st.lists(WORDS, max_size=6))
def test_no_text_is_right_for_two_different_answers(words: list[str]) -> None:
    """So naming several candidates can earn no more than the best of them alone."""
    text = " ".join(words)
    values = ("mango", "pear", "plum")
    won = [answer_match(text, Question(FRUIT.text, (value,))) for value in values]
    assert sum(won) <= 1.0


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=8, unique=True))
def test_overlap_pays_a_list_no_more_than_a_guess(said: list[str]) -> None:
    """Six answers, equally likely: a list earns what one of them earns, however long it is."""
    names = [f"item{letter}" for letter in said]
    every = [Question("Which?", (f"item{letter}",)) for letter in "abcdef"]
    earned = sum(answer_overlap(" ".join(names), q) for q in every) / 6
    assert earned == pytest.approx(1 / 6)


def test_every_fifth_answer_may_be_followed_by_another() -> None:
    ten = Question("Which ten?", tuple(f"word{i}" for i in range(10)), every=True)
    right = [f"word{i}" for i in range(10)]
    assert answer_match(", ".join([*right, "x", "y"]), ten) == 1.0
    assert answer_match(", ".join([*right, "x", "y", "z"]), ten) == 0.0
    assert answer_match(", ".join(right[:-1]), ten) == 0.0


@given(st.text(alphabet="ab ,.\n\\{}", max_size=30), st.text(alphabet="ab c", max_size=8))
def test_what_matches_exactly_is_committed(reply: str, answer: str) -> None:
    if exact_match(answer_span(reply), (answer,)):
        assert answer_match(reply, Question("Which?", (answer,))) == 1.0


def test_containment_is_bounded() -> None:
    """One more word for every word of the answer: a place with its country, never a list."""
    ghent = Question("Which city did Leila visit?", ("Ghent",))
    score = SCORES["sub_exact_match"]
    assert [score(said, ghent) for said in ("Ghent", "Ghent, Belgium")] == [1.0, 1.0]
    for said in ("Ghent, Bruges, Lille", "Ghent or Bruges", "not Ghent", "I have no idea"):
        assert score(said, ghent) == 0.0
    assert score("I have no idea.", SAME) == 0.0


@pytest.mark.parametrize(
    "name", ["token_f1", "rouge_l", "stemmed_f1", "answer_overlap", "hotpotqa_f1"]
)
def test_yes_and_no_are_right_only_alone(name: str) -> None:
    assert SCORES[name]("no", SAME) == 1.0
    if name != "rouge_l":
        assert SCORES[name]("No!", SAME) == 1.0
    assert SCORES[name]("no idea", SAME) == SCORES[name]("yes no", SAME) == 0.0
    assert SCORES[name]("no", FRUIT) == 0.0


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Paris", "Paris"),
        ("It may be Rome.\n\nParis", "Paris"),
        ("Answer: Paris\nBecause of the tower.", "Paris"),
        ("Answer: Rome\nNo. Final answer: Paris", "Paris"),
        ("The answer is Paris.", "Paris."),
        ("Answer:\n\nParis", "Paris"),
        ("\\boxed{Rome} Answer: Paris", "Rome"),
        ("<think>Answer: Rome</think>\nParis\n...", "Paris"),
        ("\n \n", ""),
    ],
)
def test_the_span_that_answers(reply: str, expected: str) -> None:
    assert answer_span(reply) == expected

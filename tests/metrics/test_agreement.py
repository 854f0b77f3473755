"""Thousands of adversarial texts: the scores agree with references written from descriptions."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.metrics import (
    METRICS,
    SCORES,
    exact_match,
    locomo_f1,
    ruler_any,
    ruler_recall,
    sub_exact_match,
    token_f1,
)
from recollect.metrics.locomo import stemmed_f1
from recollect.types import Question
from tests.support import reference_metrics as reference

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
N = 5000


def pairs(seed: int) -> list[tuple[str, str]]:
    """Make pairs of texts; half of the predictions are the gold, changed a little."""
    random = Random(seed)
    made = []
    for _ in range(N):
        gold = reference.adversarial(random)
        near = random.choice(["{}", "the {}", "It was {}!", "{} and so on", " {} ", "({})"])
        near = near.format(random.choice([gold, gold.upper(), gold.replace(",", "")]))
        made.append((random.choice([near, reference.adversarial(random)]), gold))
    return made


# Words glued by "_" or "-" after a digit are whole numbers or names to sub-EM, so it has its own.
def test_squad_agrees() -> None:
    some = pairs(0)
    for prediction, gold in some:
        assert exact_match(prediction, (gold,)) == reference.squad_em(prediction, gold)
        expected = pytest.approx(reference.squad_f1(prediction, gold))
        assert token_f1(prediction, (gold,)) == expected
    scores = [exact_match(p, (g,)) for p, g in some]
    assert 0.1 < sum(scores) / N < 0.5  # both outcomes are well represented


def test_containment_agrees_where_there_are_no_numbers() -> None:
    plain = [(p, g) for p, g in pairs(1) if not any(c.isdigit() for c in p + g)]
    assert len(plain) > N / 3
    for prediction, gold in plain:
        assert sub_exact_match(prediction, (gold,)) == reference.contained(prediction, gold)


@pytest.mark.parametrize("category", CATEGORIES)
def test_locomo_agrees(category: int) -> None:
    # The reference knows the stems of the words in its table, not of two that were glued together.
    known = {*reference.STEMS, "a", "an", "the", "and", "it", "was", "so"}
    some = [
        (p, g) for p, g in pairs(2 + category) if known.issuperset(reference.words(p + " " + g))
    ]
    assert len(some) > N / 5
    for prediction, gold in some:
        if category == 5 and "".join(filter(str.isalnum, gold)).lower() == "a":
            continue  # the letter of a choice, which the reference does not know
        expected = pytest.approx(reference.locomo(prediction, gold, category))
        assert locomo_f1(prediction, (gold,), CATEGORIES[category]) == expected, (prediction, gold)


def test_ruler_agrees() -> None:
    random = Random(9)
    for _ in range(N):
        golds = tuple(reference.adversarial(random) for _ in range(random.randint(1, 5)))
        said = " ".join(random.sample(golds, random.randint(0, len(golds))))
        prediction = random.choice([said, said.upper(), reference.adversarial(random)])
        scores = ruler_recall(prediction, golds), ruler_any(prediction, golds)
        assert scores == pytest.approx(reference.ruler(prediction, golds))


@pytest.mark.parametrize(
    ("category", "prediction", "gold", "expected"),
    [
        # stems meet: paint, run; 2 common of 3 and 2
        ("single-hop", "painted and was running", "the painting run", 4 / 5),
        ("temporal", "7 May 2023", "May 7, 2023", 1.0),
        # beach 1, mountains 2/3 of "the big mountains", forest 0
        ("multi-hop", "big mountains, beach", "beach, mountain, forest", (1 + 2 / 3 + 0) / 3),
        ("multi-hop", "beach mountain", "beach, mountain", (2 / 3 + 2 / 3) / 2),
        ("single-hop", "beach mountain", "beach, mountain", 1.0),
        ("open-domain", "yes", "Yes; since she loves animals", 1.0),
        ("single-hop", "yes", "Yes; since she loves animals", 2 * (1 / 5) / (1 + 1 / 5)),
        ("adversarial", "That is not mentioned anywhere.", "Rex", 1.0),
        ("adversarial", "No information available.", "Rex", 1.0),
        ("adversarial", "Rex", "Rex", 0.0),
        ("adversarial", "", "Rex", 0.0),
        ("adversarial", "b", "(b)", 1.0),
        ("adversarial", "(B).", "(b)", 1.0),
        ("adversarial", "Answer: (a)", "(b)", 0.0),
        ("adversarial", "a dog", "(a)", 0.0),
        ("single-hop", "", "", 0.0),
        ("multi-hop", "the", "the, a", 0.0),
    ],
)
def test_locomo_by_hand(category: str, prediction: str, gold: str, expected: float) -> None:
    assert locomo_f1(prediction, (gold,), category) == pytest.approx(expected)


def test_the_best_accepted_answer_counts() -> None:
    assert locomo_f1("dogs", ("cats", "a dog"), "single-hop") == 1.0
    assert stemmed_f1("dogs", ("cats", "a dog")) == 1.0 and stemmed_f1("dogs", ()) == 0.0
    assert locomo_f1("dogs", (), "multi-hop") == locomo_f1("b", (), "adversarial") == 0.0


def test_ruler_by_hand() -> None:
    keys = ("1234567", "7654321", "Foo", "bar")
    assert ruler_recall("They are 1234567 and FOO.", keys) == 0.5
    assert ruler_any("They are 1234567 and FOO.", keys) == 1.0
    assert ruler_recall("none", keys) == ruler_any("none", keys) == ruler_recall("x", ()) == 0.0
    assert ruler_recall("the cat", ("the", "", "cat")) == pytest.approx(1 / 3)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("said", ["", "the", "  ", "A.", r"\boxed{}"])
def test_nothing_said_earns_nothing(name: str, said: str) -> None:
    # MemAgent's reward as published takes an empty box for an empty answer.
    golds = ("Paris", "5.00", "the Beatles", *([""] * (name != "boxed_exact_match")), "the")
    earned = SCORES[name](said, Question("?", golds))
    assert earned == 0.0


# RULER looks for substrings, and ROUGE takes "45.00" for two words: they are meant for other golds.
@pytest.mark.parametrize("name", sorted({*METRICS} - {"ruler_recall", "ruler_any", "rouge_l"}))
def test_numbers_are_whole(name: str) -> None:
    for said in ("45.00", r"\boxed{45.00}", "It was 45.00."):
        assert SCORES[name](said, Question("?", ("5.00",))) == 0.0


def test_replies_are_judged_by_their_final_answer() -> None:
    question = Question("?", ("Paris",), "single-hop")
    reply = r"<think>Is it Rome?</think> Many say Rome, but the answer is \boxed{\text{Paris}}."
    scores = {name: score(reply, question) for name, score in SCORES.items()}
    assert scores.pop("numeric_match") == 0.0
    for name in ("boxed_exact_match", "boxed_match"):  # as in training: \text is not taken off
        assert scores.pop(name) == 0.0
    assert scores.pop("babilong_match") == 0.0  # knows no answers but bAbI's
    assert set(scores.values()) == {1.0}
    assert SCORES["boxed_exact_match"](r"So \boxed{paris}", question) == 1.0
    assert SCORES["boxed_exact_match"]("Paris", question) == 0.0
    assert SCORES["exact_match"]("Paris", question) == 1.0


@pytest.mark.parametrize("name", SCORES)
@given(
    st.text(max_size=80) | st.sampled_from([r"\boxed{", "</think>", "\u0000", "(a)", "1e999", "½"]),
    st.lists(st.text(max_size=30), max_size=4),
    st.sampled_from(["", *CATEGORIES.values()]),
)
def test_whatever_is_said_scores_between_0_and_1(
    name: str, said: str, golds: list[str], category: str
) -> None:
    question = Question("?", tuple(golds), category)
    assert 0.0 <= SCORES[name](said, question) <= 1.0
    boxed = SCORES[name](f"\\boxed{{{said}}}", question)
    assert 0.0 <= boxed <= 1.0


@given(st.text(max_size=40), st.lists(st.text(max_size=20), max_size=5))
def test_more_references_found_is_never_less_recall(said: str, golds: list[str]) -> None:
    longer = said + "".join(golds)
    assert ruler_recall(longer, tuple(golds)) >= ruler_recall(said, tuple(golds))
    assert ruler_any(said, tuple(golds)) == float(ruler_recall(said, tuple(golds)) > 0)

"""Benchmarks' own scores, against worked examples and a second way of writing them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.metrics import PUBLISHED, SCORES, published
from recollect.metrics.ordering import Ordering, kendall_tau, order_events
from recollect.types import Question
from tests.support import reference_metrics as reference


def pairs(seed: int) -> list[tuple[str, str]]:
    random = Random(seed)
    made = []
    for _ in range(3000):
        gold = random.choice([reference.adversarial(random), "yes", "no", "noanswer", "the"])
        said = random.choice(
            [gold, f"the {gold}!", "yes", "no idea", reference.adversarial(random)]
        )
        made.append((said, gold))
    return made


def plain(text: str) -> bool:
    """Tell whether the reference's way of taking words apart is the same: by spaces."""
    return not set(text) & set("\t\n")


def test_they_agree_with_the_references() -> None:
    some = [(p, g) for p, g in pairs(0) if plain(p + g)]
    assert len(some) > 1500
    for said, gold in some:
        words = reference.words(said) == reference.words(gold)
        assert published.squad_em(said, (gold,)) == float(words)
        assert published.hotpotqa_em(said, (gold,)) == float(words)
        expected = reference.hotpot_f1(said, gold)
        assert published.hotpotqa_f1(said, (gold,)) == pytest.approx(expected), (said, gold)
        assert published.memagent_sub_em(said, (gold,)) == reference.two_way(said, gold)


@pytest.mark.parametrize(
    ("score", "said", "golds", "expected"),
    [
        # 2 of 4 words said, 2 of 2 of the gold: 2 * (1/2) * 1 / (3/2)
        ("hotpotqa_f1", "New York in autumn", ("New York",), 2 / 3),
        ("hotpotqa_f1", "yes, it is", ("yes",), 0.0),
        ("hotpotqa_f1", "no", ("no way",), 0.0),
        ("hotpotqa_f1", "Yes.", ("yes",), 1.0),
        ("squad_f1", "yes, it is", ("yes",), 1 / 2),
        ("squad_f1", "the", ("a",), 1.0),  # nothing equals nothing
        ("hotpotqa_f1", "the", ("a",), 0.0),
        ("squad_em", "The Rhine!", ("the Elbe", "Rhine"), 1.0),
        ("hotpotqa_em", "the Rhine river", ("Rhine",), 0.0),
        ("memagent_sub_em", "It was the Rhine.", ("Rhine",), 1.0),
        ("memagent_sub_em", "Rhi", ("Rhine",), 1.0),  # the other way round, by letters
        ("memagent_sub_em", "the", ("Rhine",), 1.0),  # of which nothing is left
        ("memagent_sub_em", "", ("Rhine",), 0.0),
        ("memagent_sub_em", "Elbe", ("Rhine", "Elbe"), 0.0),  # only the first counts
        ("ruler_recall", "12 and 34, maybe 56", ("12", "56", "78"), 2 / 3),
        ("ruler_any", "it is FOO", ("foo", "bar"), 1.0),
    ],
)
def test_by_hand(score: str, said: str, golds: tuple[str, ...], expected: float) -> None:
    assert PUBLISHED[score](said, Question("?", golds)) == pytest.approx(expected)


WHERE = Question("Where is Mary? Answer with one word.", ("kitchen",), "qa1")
CARRIED = Question("What is Mary carrying? Answer with all.", ("milk, apple", "milk,apple"), "qa8")
IS_IT = Question("Is Mary in the office? Answer with yes or no.", ("no",), "qa6")
GIVES = Question("What did Fred give to Mary? Answer with one.", ("milk",), "qa5")
ROUTE = Question("How do you go? Answer with two.", ("north, east", "n, e", "n,e"), "qa19")


@pytest.mark.parametrize(
    ("question", "said", "expected"),
    [
        (WHERE, "Mary is in the kitchen.", 1),
        (WHERE, "The kitchen. Before, she was in the office.", 1),  # the first sentence counts
        (WHERE, "the kitchen or the office", 0),
        (WHERE, "I do not know", 0),
        (CARRIED, "apple and milk", 1),
        (CARRIED, "milk", 0),
        (CARRIED, "milk, apple, football", 0),
        (IS_IT, "No", 1),
        (IS_IT, "yes and no", 0),
        (IS_IT, "I do not know.", 1),  # by letters: "not" and "know" hold a no
        (GIVES, "Fred gave milk to Mary", 1),  # names of the question do not count
        (GIVES, "Jeff gave milk", 0),
        (ROUTE, "n,e", 1),
        (ROUTE, "e,n", 0),
    ],
)
def test_babilong_by_hand(question: Question, said: str, expected: int) -> None:
    assert SCORES["babilong_match"](said, question) == expected


def test_orders_of_events_by_hand() -> None:
    assert order_events(3, [0, 1, 2]) == Ordering(1.0, 1.0)
    # Two of three pairs are right: tau is (2 - 1) / 3.
    swapped = order_events(3, [0, 2, 1])
    assert swapped.found == 1.0 and swapped.tau == pytest.approx(2 / 3)
    assert order_events(3, [2, 1, 0]).tau == 0.0
    # The first alone: two pairs in order, one tied; tau is 2 / sqrt(3 * 2), F1 of 1/1 and 1/3.
    first = order_events(3, [0])
    assert first.found == pytest.approx(1 / 2)
    assert first.tau == pytest.approx((2 / 6**0.5 + 1) / 2)
    # Nothing right: as published this has a tau, (1 - sqrt(2 / 4)) / 2, but nothing was found.
    none = order_events(3, ["something else"])
    assert none.found == 0.0 and none.tau == pytest.approx((1 - 0.5**0.5) / 2)
    assert order_events(1, [0]) == Ordering(1.0, 1.0)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8))
def test_tau_agrees_with_its_definition(ranks: list[tuple[int, int]]) -> None:
    first, second = [a for a, _ in ranks], [b for _, b in ranks]
    assert kendall_tau(first, second) == pytest.approx(reference.tau_b(first, second))

"""Why answers fail: what a reader's labels say about 85 episodes, and what the page says.

Two readers labelled the first 68, the second without the first one's labels: they agreed on all.
"""

from __future__ import annotations

from collections import Counter

import pytest

from recollect.types import Question
from recollect.view.causes import CAUSES
from recollect.view.evidence import Text, find, trail
from recollect.view.films import trace
from tests.support.labelled import labelled, stored

LABELLED = labelled()


def test_causes_agree_with_the_labels():
    found = [(item["label"], trace(stored(item)).lives[0].cause) for item in LABELLED]
    assert len(found) >= 80
    assert {item.get("shape", "fold") for item in LABELLED} >= {"fold", "bank", "gated", "curator"}
    assert {label for label, _ in found} == set(CAUSES)
    agreed = sum(label == cause for label, cause in found)
    confusion = Counter(pair for pair in found if pair[0] != pair[1])
    assert agreed / len(found) >= 0.9, confusion
    for cause in CAUSES:  # in every class, not only in the largest
        own = [label == said for label, said in found if label == cause]
        assert sum(own) / len(own) >= 0.8, cause


@pytest.mark.parametrize("item", LABELLED[:6], ids=lambda item: item["label"])
def test_right_answers_have_no_cause(item):
    from dataclasses import replace

    assert trace(replace(stored(item), scores=(1.0,), failure=None)).lives[0].cause == ""


def test_the_turns_where_an_answer_enters_and_dies():
    life = trace(stored(LABELLED[0])).lives[0]
    assert (life.seen, life.entered, life.died, life.asked) == (0, 0, 2, 3)
    assert life.holds == (True, True, False, False)


def test_answers_are_found_however_they_are_written():
    assert find(Text("It cost 1,200 dollars."), "$1,200")
    assert find(Text("on May 12, 1931"), "12 May 1931")
    assert not find(Text("on May 13, 1931"), "12 May 1931")
    assert find(Text("seven horses"), "7") and not find(Text("17 horses"), "7")
    assert find(Text("fruit=mango;"), "mango") and not find(Text("mangosteen"), "mango")
    assert not find(Text("anything"), "") and not find(Text(""), "mango")


def test_another_ones_value_is_not_the_answer():
    asked = Question("What is Tom's favourite fruit?", ("kiwi",))
    read = [Text("Maria's favourite fruit is kiwi."), Text("Tom's favourite fruit is kiwi.")]
    follow = trail(asked, read)
    assert follow.holds(Text("Tom likes kiwi")) and follow.holds(Text("kiwi"))
    assert not follow.holds(Text("Maria likes kiwi; Tom: unknown"))

"""Answers to other questions that occur by coincidence are no choice; leaks among the rest are."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from recollect.commands.data.audit import AuditOptions, audit_family, leaks
from recollect.tasks.audit.shared import SharedAnswers
from recollect.tasks.base import Split
from recollect.types import Question, Task

COMMON = ("oak", "elm", "tin", "ash", "rye", "fig", "oat", "ivy", "yew", "fir", "hay", "jet")
HELD = AuditOptions(names=())


@dataclass(frozen=True)
class Shelf:
    """Forty documents with two questions each, four of them a text; one may be placed first."""

    first: bool = False
    fresh: bool = False
    """What is asked about is in one text alone, and most answers are given once."""
    name: str = "shelf"
    metric: str = "answer_match"

    def size(self, split: Split) -> int:
        return 160

    def longer(self, times: int) -> Shelf:
        return self

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        rng = Random(f"{split} {index}")
        own = index if self.fresh else rng.randrange(40)
        others = [i for i in (range(500, 999) if self.fresh else range(40)) if i != own]
        drawn = rng.sample(others, 3)
        at = 0 if self.first else rng.randrange(4)
        drawn.insert(at, own)
        short, _ = self._document(own, split)
        brief = rng.random() < (0.3 if self.fresh else 0.5)
        answer = short if brief else f"the mill of {split} {own}"
        question = Question(f"Which {brief} of {own}?", (answer,), "", (at,))
        chunks = tuple(self._document(i, split)[1] for i in drawn)
        return Task(f"shelf-{split}-{index}", chunks, (question,), self.name)

    def _document(self, number: int, split: str) -> tuple[str, str]:
        rng = Random(f"{split} document {number}")
        words = rng.choices(COMMON, k=rng.randint(10, 16))
        words.insert(rng.randrange(len(words)), f"the mill of {split} {number}")
        return rng.choice([w for w in words if w in COMMON]), " ".join(words) + "."


def found(family: Shelf) -> list[str]:
    return leaks(audit_family("shelf", family, 160), HELD)


def test_words_that_occur_by_coincidence_are_no_choice():
    """All twelve words occur in most texts; only those that its documents are asked for count."""
    assert found(Shelf()) == []


def test_a_leak_among_the_answers_of_shared_documents_is_found():
    assert any(line.startswith("value: first") for line in found(Shelf(first=True)))


def test_free_words_in_texts_that_share_nothing_are_no_choice():
    audit = audit_family("shelf", Shelf(fresh=True), 160)
    assert not [row for row in audit.rows if row.group == "value"]
    assert [row for row in audit.rows if row.group == "document"]


def test_answers_are_known_by_all_documents_of_their_evidence():
    def asked(name: str, chunks: tuple[str, ...], answer: str, evidence: tuple[int, ...]) -> Task:
        return Task(name, chunks, (Question("?", (answer,), "", evidence),), "f")

    tasks = [
        asked("1", ("Document 1:\nA b.", "Document 2:\nC d."), "Old Oak", (0, 1)),
        asked("2", ("Document 1:\nc  d.", "E f."), "elm", (0,)),
    ]
    shared = SharedAnswers(tasks)
    assert shared.among(("Document 7:\nC d.", "G")) == {("elm",)}
    assert shared.among(("c d.", "document 3:\na b.")) == {("elm",), ("old", "oak")}
    assert shared.among(("E f.",)) == frozenset()

"""Do the splits of a family overlap, and is its evidence anywhere with the same chance?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.tasks.audit.shared import text_digest
from recollect.tasks.uniformity import chi_square_p, histogram
from recollect.types import Task


@dataclass(frozen=True)
class Overlap:
    """How much of one split's tasks is in the other's too."""

    what: str
    shared: int
    of: int


@dataclass(frozen=True)
class Positions:
    """Where the evidence is, in tenths of the text."""

    found: list[int]
    expected: list[float]
    p: float
    """How likely counts differ this much by chance."""

    @property
    def apart(self) -> float:
        """How far a tenth of the text is from its share, at most."""
        pairs = zip(self.found, self.expected, strict=True)
        return max(abs(found - expected) for found, expected in pairs) / sum(self.found)


def overlaps(train: Sequence[Task], test: Sequence[Task]) -> list[Overlap]:
    """Count what the test tasks share with the training tasks, by the words alone."""
    known = {text_digest(chunk) for task in train for chunk in task.chunks}
    documents, gold = set(), set()
    for task in test:
        evidence = {i for question in task.questions for i in question.evidence}
        for i, chunk in enumerate(task.chunks):
            key = text_digest(chunk)
            documents.add(key)
            if i in evidence:
                gold.add(key)
    asked = {text_digest(q.text) for task in train for q in task.questions}
    tasks = {_whole(task) for task in train}
    questions = {text_digest(q.text) for task in test for q in task.questions}
    whole = {_whole(task) for task in test}
    return [
        Overlap("whole tasks", len(whole & tasks), len(whole)),
        Overlap("chunks with evidence", len(gold & known), len(gold)),
        Overlap("chunks", len(documents & known), len(documents)),
        Overlap("questions", len(questions & asked), len(questions)),
    ]


def _whole(task: Task) -> bytes:
    texts = [*task.chunks, *(question.text for question in task.questions)]
    return text_digest("\n".join(texts))


def positions(tasks: Sequence[Task]) -> Positions | None:
    """Test whether evidence is equally likely everywhere; None where no task names any."""
    places = [
        (i, len(task.chunks))
        for task in tasks
        if len(task.chunks) > 1
        for question in task.questions
        for i in question.evidence
        if i < len(task.chunks)
    ]
    if not places:
        return None
    found, expected = histogram(places)
    return Positions(found, expected, chi_square_p(found, expected))

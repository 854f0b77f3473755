"""Do the splits of a family overlap, and is its evidence anywhere with the same chance?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from recollect.tasks.audit.shared import digest_of, plain_words
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
    known, own = _Digests.of(train), _Digests.of(test)
    return [
        Overlap("whole tasks", len(own.tasks & known.tasks), len(own.tasks)),
        Overlap("chunks with evidence", len(own.evidence & known.chunks), len(own.evidence)),
        Overlap("chunks", len(own.chunks & known.chunks), len(own.chunks)),
        Overlap("questions", len(own.questions & known.questions), len(own.questions)),
    ]


@dataclass(frozen=True)
class _Digests:
    """What the texts of a split are known by."""

    tasks: set[bytes] = field(default_factory=set)
    chunks: set[bytes] = field(default_factory=set)
    evidence: set[bytes] = field(default_factory=set)
    """Chunks that a question names."""
    questions: set[bytes] = field(default_factory=set)

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> _Digests:
        found = cls()
        for task in tasks:
            texts = [plain_words(chunk) for chunk in task.chunks]
            asked = [plain_words(question.text) for question in task.questions]
            chunks = [digest_of(text) for text in texts]
            named = {i for question in task.questions for i in question.evidence}
            found.tasks.add(digest_of(" ".join([*texts, *asked])))
            found.chunks.update(chunks)
            found.evidence.update(key for i, key in enumerate(chunks) if i in named)
            found.questions.update(map(digest_of, asked))
        return found


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

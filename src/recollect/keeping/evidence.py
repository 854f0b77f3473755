"""The passages that an answer rests on: found again in the text by the words of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.foreign import storable
from recollect.keeping.sources import Document
from recollect.memory.passages import PassageIndex, packed

PASSAGE = 400
"""Characters of a passage."""


@dataclass(frozen=True)
class Passage:
    """A piece of a document."""

    document: str
    place: float
    """How far into the document it is, from 0 to 1."""
    text: str
    score: float


async def find_passages(
    documents: Sequence[Document], question: str, answer: str, count: int
) -> list[Passage]:
    """Return the passages nearest to a question and its answer, the best first."""
    sought = storable(f"{question} {answer}")
    if count < 1 or not documents or not sought.strip():
        return []
    places: list[tuple[str, float]] = []
    index = PassageIndex(None)
    for document in documents:
        at = 0
        for piece in packed(document.text, PASSAGE):
            if piece.strip():
                index.read(piece)
                places.append((document.name, at / max(1, len(document.text))))
            at += len(piece) + 1
    hits = await index.search(sought, count)
    found = []
    for hit in hits:
        number = int(hit.entry.id.rpartition("_")[2])  # memory_1 is the first that was read
        found.append(Passage(*places[number - 1], hit.entry.content, hit.score))
    return found

"""The text read so far, in passages that can be searched by words or by meaning.

Nothing that has not been read can be found, and nothing of it counts in a score. Knows nothing of
agents or tools.
"""

from __future__ import annotations

from collections.abc import Iterator

from recollect.memory.corpus import Corpus
from recollect.memory.search import Mode
from recollect.memory.store import Embed, Hit, Store


class PassageIndex:
    """A growing index: what is read once is counted once, however often it is searched."""

    def __init__(self, size: int | None = 2000, embed: Embed | None = None) -> None:
        self.size = size
        """Characters of a passage; None keeps every text that is read in one piece."""
        self._store = Store(Corpus.build("text"), embed)

    def __len__(self) -> int:
        return len(self._store)

    def read(self, text: str) -> None:
        """Add a text."""
        for piece in [text] if self.size is None else packed(text, self.size):
            if piece.strip():
                self._store.add(piece)

    async def search(self, query: str, top_k: int, mode: Mode = "bm25") -> list[Hit]:
        """Return the best passages, exactly; equal ones in the order they were read."""
        return await self._store.search(query, top_k, mode)


def packed(text: str, size: int) -> Iterator[str]:
    """Cut a text at line ends into pieces of at most `size` characters.

    A line that is longer is a piece of its own, as it is in the published chunking.
    """
    held: list[str] = []
    length = 0
    for line in text.split("\n"):
        if held and length + len(line) > size:
            yield "\n".join(held)
            held, length = [], 0
        held.append(line)
        length += len(line) + 1
    yield "\n".join(held)

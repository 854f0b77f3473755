"""What a reader is given of a store: the best few memories for a question, within a budget."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from recollect.errors import UserError
from recollect.memory.changes import CountTokens, count_words
from recollect.memory.entries import Entry
from recollect.memory.search import MODES, Mode
from recollect.memory.store import Store
from recollect.types import Question

NOTHING = "(no memories found)"
READ_PROMPT = (
    "Answer the question from the memories below and nothing else. Each has its time: work out"
    ' what "yesterday" or "last year" means from it, and believe the later of two that disagree.'
    " Reply with the answer alone, in at most six words."
)


@dataclass(frozen=True)
class Passage:
    """A memory as it is read."""

    entry: Entry
    text: str
    """Its content, cut where the budget ends."""


@dataclass(frozen=True)
class Retrieval:
    """How memories are found for a question. Fixed, so that stores can be compared by it."""

    top_k: int = 5
    max_tokens: int = 512
    """Tokens of all memories together; the one that does not fit is cut, the others left out."""
    mode: Mode = "bm25"
    """dense and hybrid need vectors."""

    def __post_init__(self) -> None:
        for name in ("top_k", "max_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}", "set it to 1 or more")
        if self.mode not in MODES:
            raise UserError(
                f"there is no search mode {self.mode!r}", f"choose from {', '.join(MODES)}"
            )

    async def find(
        self, store: Store, question: str, count_tokens: CountTokens = count_words
    ) -> tuple[Passage, ...]:
        """Return what a reader of this store sees for a question, best first."""
        hits = await store.search(question, self.top_k, self.mode)
        passages: list[Passage] = []
        left = self.max_tokens
        for hit in hits:
            text = cut(hit.entry.content, left, count_tokens)
            if not text:
                break
            passages.append(Passage(hit.entry, text))
            left -= count_tokens(text)
        return tuple(passages)


def cut(text: str, limit: int, count_tokens: CountTokens = count_words) -> str:
    """Return as many whole words from the start of a text as `limit` tokens hold."""
    if count_tokens(text) <= limit:
        return text
    parts = text.split(" ")
    counts = range(len(parts) + 1)
    most = bisect_right(counts, limit, key=lambda n: count_tokens(" ".join(parts[:n]))) - 1
    return " ".join(parts[: max(0, most)])


def reader_text(question: Question, found: Sequence[Passage]) -> str:
    """Write what a reader reads."""
    return f"Memories:\n{shown(found)}\n\nQuestion: {question.text}"


def shown(passages: Sequence[Passage]) -> str:
    """Write passages for a reader, with who said what when."""
    lines = []
    for i, passage in enumerate(passages, start=1):
        known = (passage.entry.metadata.get(key, "") for key in ("timestamp", "speaker"))
        note = "; ".join(v if isinstance(v, str) else ", ".join(v) for v in known if v)
        lines.append(f"{i}. {f'[{note}] ' if note else ''}{passage.text}")
    return "\n".join(lines) or NOTHING

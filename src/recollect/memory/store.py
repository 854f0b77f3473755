"""A store of memories: a copy-on-write fork of a shared base, edited only by operations.

Opening one costs the same whatever the size of the base. Knows nothing of agents, tools or files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np

from recollect.errors import UserError
from recollect.memory.changes import CountTokens, Diff, Growth, count_words
from recollect.memory.corpus import Corpus, unit_rows
from recollect.memory.edits import Edits
from recollect.memory.entries import (
    BadOperation,
    Draft,
    Entry,
    Filter,
    Metadata,
    Provenance,
    Tombstone,
    check_text,
    name_of,
    number_of,
)
from recollect.memory.operations import filled, plan
from recollect.memory.search import MODES, RRF_DEPTH, Live, Mode, Ranking, fuse
from recollect.types import MemoryOp


class Embed(Protocol):
    """Turn texts into unit vectors, one row each."""

    async def __call__(
        self, texts: Sequence[str], kind: Literal["document", "query"] = "document"
    ) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that a search found."""

    entry: Entry
    score: float
    """Cosine, BM25 or fused rank score: higher is better, comparable within one search only."""


class Store:
    """Memories under ids `memory_1`, `memory_2`, ...; an id is never used again."""

    def __init__(self, corpus: Corpus, embed: Embed | None = None) -> None:
        self.corpus = corpus
        self.ops: list[MemoryOp] = []
        self._embed = embed
        self._edits = Edits()
        self._graves: dict[int, Tombstone] = {}
        self._lent = False  # edits and graves may be another store's as well
        self._next = len(corpus) + 1
        self._closed = ""

    # Reading

    def __len__(self) -> int:
        gone = len(self._edits.gone)
        return len(self.corpus) - gone + len(self._edits.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries())

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self._has(number_of(id))

    def get(self, id: str) -> Entry:
        """Return the live entry with this id."""
        self._use()
        entry = self._find(number_of(id))
        if entry is None:
            raise BadOperation(self._absence(id))
        return entry

    def tombstone(self, id: str) -> Tombstone | None:
        """Return what is left of a deleted entry."""
        return self._graves.get(number_of(id))

    def entries(self, where: Filter = Filter()) -> list[Entry]:
        """Return the live entries a filter allows, in the order they were made."""
        self._use()
        numbers = Live.of(self.corpus, self._edits, where).all()
        return [self._take(number) for number in numbers]

    async def search(
        self, query: str, top_k: int = 5, mode: Mode = "dense", where: Filter = Filter()
    ) -> list[Hit]:
        """Return the best `top_k` entries a filter allows, exactly; equal scores by id."""
        self._use()
        if mode not in MODES:
            raise ValueError(f"there is no search mode {mode!r}, only {', '.join(MODES)}")
        check_text("the query", query)
        if not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 1:
            raise BadOperation("top_k must be a whole number of at least 1")
        vector = None if mode == "bm25" else await self._query_vector(query)
        # No await from here on: the store cannot change between counting and ranking.
        self._use()
        live = Live.of(self.corpus, self._edits, where)
        depth = top_k if mode != "hybrid" else max(top_k, RRF_DEPTH)
        rankings: list[Ranking] = []
        if vector is not None:
            rankings.append(live.dense(vector, depth))
        if mode != "dense":
            rankings.append(live.bm25(query, depth))
        best = fuse(rankings, top_k) if mode == "hybrid" else rankings[0]
        return [Hit(self._take(number), score) for number, score in best]

    # Editing

    def add(self, content: str, metadata: Metadata | None = None, label: str = "") -> Entry:
        """Write a new entry."""
        return self.apply(MemoryOp("add", filled(content, metadata or {}), label))[0]

    def update(
        self,
        id: str,
        content: str | None = None,
        metadata: Metadata | None = None,
        label: str = "",
    ) -> Entry:
        """Replace an entry's content, or the metadata that is named, or both."""
        data: dict[str, Any] = {"id": id}
        if content is not None:
            data["content"] = content
        if metadata is not None:
            data["metadata"] = metadata
        return self.apply(MemoryOp("update", data, label))[0]

    def delete(self, id: str, label: str = "") -> Tombstone:
        """Delete an entry; its tombstone stays."""
        self.apply(MemoryOp("delete", {"id": id}, label))
        return self._graves[number_of(id)]

    def merge(
        self, ids: Sequence[str], content: str, metadata: Metadata | None = None, label: str = ""
    ) -> Entry:
        """Replace several entries by one; what `metadata` does not name is taken from them."""
        data = {"ids": ids, **filled(content, metadata or {})}
        return self.apply(MemoryOp("merge", data, label))[0]

    def split(self, id: str, parts: Iterable[Draft], label: str = "") -> list[Entry]:
        """Replace an entry by several; what a part's metadata does not name is taken from it."""
        drafts = [filled(part.content, part.metadata) for part in parts]
        return list(self.apply(MemoryOp("split", {"id": id, "parts": drafts}, label)))

    def apply(self, op: MemoryOp) -> tuple[Entry, ...]:
        """Carry out one operation and record it; a refused one changes nothing.

        Returns the entries it wrote. The recorded operation is plain data of its own, so replaying
        `ops` on a fresh store over the same base gives this store.
        """
        self._use()
        doing = plan(op, self.get)
        if self._lent:
            self._edits, self._graves = self._edits.copy(), dict(self._graves)
            self._lent = False
        provenance = Provenance(op.kind, op.label, doing.buried)
        written = [self._write(draft, doing.over, provenance) for draft in doing.drafts]
        for id in doing.buried:
            self._bury(id, Tombstone(id, op.label, tuple(entry.id for entry in written)))
        self.ops.append(MemoryOp(op.kind, doing.data, op.label))
        return tuple(written)

    def index_words(self) -> None:
        """Count the words written since the last search, so that the next search need not do it."""
        self._use()
        self._edits.slots()
        self._edits.lengths()

    # The whole state

    def snapshot(self) -> dict[str, Any]:
        """Return what differs from the base, as plain data."""
        self._check_open()
        own = sorted(self._edits.entries.items())
        return {
            "base": self.corpus.fingerprint,
            "next": name_of(self._next),
            "entries": [entry.plain() for _, entry in own],
            "tombstones": [
                {"id": grave.id, "label": grave.label, "into": list(grave.into)}
                for _, grave in sorted(self._graves.items())
            ],
        }

    def fork(self) -> Self:
        """Return an independent copy; the edits are copied when either of the two is edited."""
        other = self._fresh()
        other.become(self)
        return other

    def become(self, other: Store) -> None:
        """Take over all edits of another store over the same base; later ones are not shared."""
        other._check_open()
        self._check_open()
        if other.corpus.fingerprint != self.corpus.fingerprint:
            raise ValueError("a store can only become one over the same base")
        if other is not self:
            self.ops[:] = other.ops
            self._edits, self._graves, self._next = other._edits, other._graves, other._next
            self._lent = other._lent = True

    def diff(self, earlier: Store | None = None) -> Diff:
        """Compare with an earlier state over the same base, or with the base itself."""
        self._check_open()
        before = Store(self.corpus) if earlier is None else earlier
        if before.corpus.fingerprint != self.corpus.fingerprint:
            raise ValueError("only stores over the same base can be compared")
        touched = sorted(before._touched | self._touched)
        pairs = [(before._find(number), self._find(number)) for number in touched]
        return Diff(
            tuple(new for old, new in pairs if new and not old),
            tuple((old, new) for old, new in pairs if old and new and old != new),
            tuple(old for old, new in pairs if old and not new),
        )

    def growth(self, count_tokens: CountTokens = count_words) -> Growth:
        """Measure how far the store has moved from its base."""
        return Growth.of(self.diff(), self._edits.nbytes(), count_tokens)

    def close(self) -> None:
        """Drop the edits; the operations stay readable, everything else is refused."""
        self._closed = self._closed or "it was closed"
        self._edits, self._graves = Edits(), {}

    # Inside

    def _fresh(self) -> Self:
        """Open another store over the same base."""
        return type(self)(self.corpus, self._embed)

    @property
    def _touched(self) -> set[int]:
        return self._edits.entries.keys() | self._graves.keys()

    def _use(self) -> None:
        """Called by everything an agent does with the store."""
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"the store over {self.corpus.name!r} is no more: {self._closed}")

    def _has(self, number: int) -> bool:
        in_base = 0 < number <= len(self.corpus) and number not in self._graves
        return in_base or number in self._edits.entries

    def _find(self, number: int) -> Entry | None:
        return self._take(number) if self._has(number) else None

    def _take(self, number: int) -> Entry:
        return self._edits.entries.get(number) or self.corpus.entry(number)

    def _absence(self, id: str) -> str:
        grave = self._graves.get(number_of(id))
        if grave is None:
            return f"there is no {id!r}; ids look like 'memory_1'"
        return f"{id} was deleted" + (f"; see {', '.join(grave.into)}" if grave.into else "")

    def _write(self, draft: Draft, over: str, provenance: Provenance) -> Entry:
        number = number_of(over) or self._next
        self._next = max(self._next, number + 1)
        entry = Entry(name_of(number), draft.content, draft.metadata, provenance)
        self._edits.put(number, entry, len(self.corpus))
        return entry

    def _bury(self, id: str, grave: Tombstone) -> None:
        self._edits.drop(number_of(id), len(self.corpus))
        self._graves[number_of(id)] = grave

    async def _query_vector(self, query: str) -> np.ndarray:
        """Embed the query, and every entry written since the last such search."""
        if self._embed is None or (len(self.corpus) and self.corpus.vectors is None):
            raise UserError(
                f"the memories of {self.corpus.name!r} have no vectors to search",
                "compute them with `recollect data embed`, or search with bm25",
            )
        vector = unit_rows(await self._embed([query], "query"), 1)[0]
        while True:
            stamp, texts = self._edits.unembedded()
            if not texts:
                return vector
            rows = unit_rows(await self._embed(texts), len(texts))
            self._edits.embed(stamp, rows)


def replay(corpus: Corpus, ops: Iterable[MemoryOp], embed: Embed | None = None) -> Store:
    """Carry out operations on a fresh store over a base."""
    store = Store(corpus, embed)
    for op in ops:
        store.apply(op)
    return store

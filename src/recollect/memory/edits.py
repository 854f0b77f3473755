"""What one trial has changed, indexed for search when it is searched.

Until then an edit costs a dictionary entry; words are counted when words are sought. Slots are only
appended: a replaced or deleted entry leaves a dead slot, and the index is rebuilt when most are
dead.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from recollect.memory.entries import Entry, facets_of
from recollect.memory.terms import words

Stamp = tuple[int, int]
"""Rebuilds so far, and the first slot without a vector."""

_REBUILD = 64  # dead slots below this many are not worth a rebuild


@dataclass(frozen=True, eq=False)
class Slots:
    """The indexed edits as arrays, one row per slot."""

    numbers: np.ndarray
    """int64"""
    alive: np.ndarray
    """bool"""


class Edits:
    """Live entries of a trial that the base does not have, and base entries it no longer has."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        """Live, by number."""
        self.gone: set[int] = set()
        """Positions in the base that were updated or deleted."""
        self.vectors: np.ndarray | None = None
        """float32 [capacity, d]; the first `embedded` rows are filled."""
        self.embedded = 0
        self._rebuilds = 0
        self._slot_of: dict[int, int] = {}
        self._contents: list[str] = []
        self._numbers: list[int] = []
        self._lengths: list[int] = []
        self._terms: dict[str, tuple[list[int], list[int]]] = {}
        self._facets: dict[str, list[int]] = {}
        self._waiting: dict[int, Entry] = {}
        self._slots: Slots | None = None
        self._gone: np.ndarray | None = None

    def put(self, number: int, entry: Entry, base_size: int) -> None:
        """Make `entry` what the number stands for."""
        self.drop(number, base_size)
        self.entries[number] = self._waiting[number] = entry

    def drop(self, number: int, base_size: int) -> None:
        """Make the number stand for nothing."""
        if number <= base_size:
            self.gone.add(number - 1)
            self._gone = None
        self.entries.pop(number, None)
        self._waiting.pop(number, None)
        if self._slot_of.pop(number, None) is not None:
            self._slots = None

    def gone_positions(self) -> np.ndarray:
        """Return the base positions that no longer count, ascending."""
        if self._gone is None:
            self._gone = np.array(sorted(self.gone), np.int64)
        return self._gone

    def slots(self) -> Slots:
        """Index what was written since the last search, and return all slots."""
        dead = len(self._numbers) - len(self._slot_of)
        if dead > max(_REBUILD, len(self._slot_of)):
            self._rebuild()
        for number, entry in self._waiting.items():
            self._append(number, entry)
        if self._waiting or self._slots is None:
            alive = np.zeros(len(self._numbers), bool)
            alive[list(self._slot_of.values())] = True
            self._slots = Slots(np.array(self._numbers, np.int64), alive)
            self._waiting.clear()
        return self._slots

    def lengths(self) -> np.ndarray:
        """Count the words of every slot, int64, and index them for `term`."""
        for slot in range(len(self._lengths), len(self._contents)):
            bag = Counter(words(self._contents[slot]))
            for word, count in bag.items():
                slots, counts = self._terms.setdefault(word, ([], []))
                slots.append(slot)
                counts.append(count)
            self._lengths.append(bag.total())
        return np.array(self._lengths, np.int64)

    def term(self, word: str) -> tuple[list[int], list[int]]:
        """Return the slots that have a word, dead ones included, and its count in each."""
        return self._terms.get(word, ([], []))

    def facet(self, key: str) -> list[int]:
        """Return the slots that have a metadata key, dead ones included."""
        return self._facets.get(key, [])

    def unembedded(self) -> tuple[Stamp, list[str]]:
        """Return the contents of the slots that have no vector yet, in order."""
        self.slots()
        return (self._rebuilds, self.embedded), self._contents[self.embedded :]

    def embed(self, stamp: Stamp, rows: np.ndarray) -> None:
        """Keep the vectors of the contents that `unembedded` returned with this stamp.

        Vectors are awaited, and another search of this trial may have been faster: its slots are
        not these any more, so late vectors are dropped, and a caller who needs them asks again.
        """
        if stamp != (self._rebuilds, self.embedded):
            return
        first, end = self.embedded, self.embedded + len(rows)
        if self.vectors is None or end > len(self.vectors):
            grown = np.zeros((max(8, 2 * end), rows.shape[1]), np.float32)
            if self.vectors is not None:
                grown[:first] = self.vectors[:first]
            self.vectors = grown
        self.vectors[first:end] = rows
        self.embedded = end

    def copy(self) -> Edits:
        """Return edits that share no later change."""
        other = Edits()
        other.entries, other.gone = dict(self.entries), set(self.gone)
        other.vectors = None if self.vectors is None else self.vectors.copy()
        other.embedded, other._rebuilds = self.embedded, self._rebuilds
        other._slot_of, other._waiting = dict(self._slot_of), dict(self._waiting)
        other._contents, other._numbers = list(self._contents), list(self._numbers)
        other._lengths = list(self._lengths)
        other._terms = {w: (list(slots), list(c)) for w, (slots, c) in self._terms.items()}
        other._facets = {key: list(slots) for key, slots in self._facets.items()}
        return other

    def nbytes(self) -> int:
        """Return about how many bytes the edits hold: texts and vectors."""
        texts = sum(len(entry.content) for entry in self.entries.values())
        return texts + (0 if self.vectors is None else self.vectors.nbytes)

    def _append(self, number: int, entry: Entry) -> None:
        slot = self._slot_of[number] = len(self._numbers)
        for key in facets_of(entry.metadata):
            self._facets.setdefault(key, []).append(slot)
        self._contents.append(entry.content)
        self._numbers.append(number)

    def _rebuild(self) -> None:
        """Index the live entries afresh, keeping the vectors they have."""
        live = sorted(self._slot_of.items(), key=lambda pair: pair[1])
        kept = [slot for _, slot in live if slot < self.embedded]
        if self.vectors is not None:
            self.vectors = self.vectors[kept]
        self.embedded = len(kept)
        self._slot_of, self._terms, self._facets = {}, {}, {}
        self._contents, self._numbers, self._lengths = [], [], []
        for number, _ in live:
            self._append(number, self.entries[number])
        self._slots = None
        self._rebuilds += 1

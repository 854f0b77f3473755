"""Exact search over a base and a trial's edits: by angle, by words (BM25), or both.

The answer equals that of an index built afresh from the live entries. This is why BM25 is scored
here and not by bm25s: bm25s stores finished scores, and one edit changes the number of entries, the
average length and with them every score. Here only counts are stored, and a query scores them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from recollect.memory.corpus import Corpus
from recollect.memory.edits import Edits, Slots
from recollect.memory.entries import Filter
from recollect.memory.terms import words

Mode = Literal["dense", "bm25", "hybrid"]
MODES: tuple[Mode, ...] = get_args(Mode)

K1, B = 1.5, 0.75  # BM25 as Lucene scores it; bm25s has the same defaults
RRF_K = 60  # reciprocal rank fusion: a rank r counts 1 / (60 + r)
RRF_DEPTH = 100
"""Fusion looks at this many of each ranking, or at top_k if that is more."""

_NOWHERE = np.zeros(0, np.int64)

Ranking = list[tuple[int, float]]
"""(memory number, score), best first; equal scores in order of number."""


@dataclass(frozen=True, eq=False)
class Live:
    """The live entries of a base and its edits, and those among them that a filter allows.

    Entries have places: first the base's positions, then the slots of the edits.
    """

    corpus: Corpus
    edits: Edits
    slots: Slots
    live: np.ndarray
    """bool [places]"""
    allowed: np.ndarray
    """bool [places]: live, and wanted by the filter"""

    @classmethod
    def of(cls, corpus: Corpus, edits: Edits, where: Filter) -> Live:
        """Work out which entries a search may return."""
        n, slots = len(corpus), edits.slots()
        live = np.ones(n + len(slots.alive), bool)
        live[edits.gone_positions()] = False
        live[n:] = slots.alive
        allowed = live
        for keys in where.facets():
            wanted = np.zeros(len(live), bool)
            for key in keys:
                wanted[corpus.facets.get(key)[0]] = True
                wanted[n:][edits.facet(key)] = True
            allowed = allowed & wanted
        return cls(corpus, edits, slots, live, allowed)

    def numbers(self, places: np.ndarray) -> np.ndarray:
        """Return the memory numbers at some places, ascending."""
        n = len(self.corpus)
        own = places >= n
        numbers = places + 1
        numbers[own] = self.slots.numbers[places[own] - n]
        return numbers

    def all(self) -> list[int]:
        """Return the numbers of all allowed entries, in order."""
        return sorted(self.numbers(np.flatnonzero(self.allowed)).tolist())

    def bm25(self, query: str, top_k: int) -> Ranking:
        """Rank the allowed entries that share a word with the query."""
        asked = Counter(words(query))
        own = self.edits.lengths()  # this also finds the words that were written last
        places, counts, sizes = self._matches(asked)
        if not len(places):
            return []
        lengths = np.concatenate([self.corpus.lengths, own])
        n = max(1, int(np.count_nonzero(self.live)))
        mean = max(1, int(lengths[self.live].sum(dtype=np.int64))) / n
        upto = np.concatenate([[0], np.cumsum(self.live[places])])  # live matches before each
        dfs = np.diff(upto[np.cumsum([0, *sizes])]).tolist()
        # A word that stands twice in the query counts twice.
        weights = [
            times * math.log(1 + (n - df + 0.5) / (df + 0.5))
            for times, df in zip(asked.values(), dfs, strict=True)
        ]
        norms = K1 * (1 - B + B * lengths[places] / mean)
        parts = np.repeat(np.array(weights), sizes) * (counts / (counts + norms))
        # Added up in the order of the query's words: an entry's score has the same bits whether it
        # stands in the base or in the edits.
        scores = np.bincount(places, parts, minlength=len(self.live))
        found = np.flatnonzero((scores > 0) & self.allowed)
        return _best(self.numbers(found), scores[found], top_k)

    def dense(self, query: np.ndarray, top_k: int) -> Ranking:
        """Rank the allowed entries by the cosine of their angle to a unit vector."""
        places = np.flatnonzero(self.allowed)
        if not len(places):
            return []
        query = np.ascontiguousarray(query, np.float32)
        if len(places) > top_k:
            # BLAS rounds a row differently depending on where it stands, which would let chance
            # order equal vectors. So it only picks candidates, with a margin above its error
            # (d * 2^-24 for unit vectors), and those are scored again, each row by itself.
            margin = 2.1 * len(query) * 2.0**-24
            scores = self._cosines(places, query)
            places = places[scores >= _kth(scores, top_k) - margin]
        exact = (self._rows(places).astype(np.float64) * query).sum(axis=1)
        return _best(self.numbers(places), exact, top_k)

    def _matches(self, asked: Iterable[str]) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """Return the places of the words, their counts, and the number of places of each word."""
        places, counts, sizes = [_NOWHERE], [_NOWHERE], []
        for word in asked:
            base, base_counts = self.corpus.terms.get(word)
            own, own_counts = self.edits.term(word)
            places += [base, np.array(own, np.int64) + len(self.corpus)] if own else [base]
            counts += [base_counts, np.array(own_counts, np.int64)] if own else [base_counts]
            sizes.append(len(base) + len(own))
        return np.concatenate(places), np.concatenate(counts), sizes

    def _cosines(self, places: np.ndarray, query: np.ndarray) -> np.ndarray:
        if 4 * len(places) < len(self.allowed):
            return self._rows(places) @ query
        parts = [v[:n] @ query for v, n in self._parts() if v is not None and n]
        return np.concatenate(parts)[places]  # more work, but no copy of the base

    def _rows(self, places: np.ndarray) -> np.ndarray:
        cut = int(places.searchsorted(len(self.corpus)))
        picks = (places[:cut], places[cut:] - len(self.corpus))
        pairs = zip(self._parts(), picks, strict=True)
        return np.concatenate([v[at] for (v, _), at in pairs if v is not None and len(at)])

    def _parts(self) -> tuple[tuple[np.ndarray | None, int], tuple[np.ndarray | None, int]]:
        base = (self.corpus.vectors, len(self.corpus))
        return base, (self.edits.vectors, len(self.slots.alive))


def fuse(rankings: list[Ranking], top_k: int) -> Ranking:
    """Merge rankings by reciprocal rank: what several put high comes first."""
    numbers = [number for ranking in rankings for number, _ in ranking]
    shares = [1 / (RRF_K + rank) for each in rankings for rank in range(1, len(each) + 1)]
    different, which = np.unique(np.array(numbers, np.int64), return_inverse=True)
    return _best(different, np.bincount(which, shares, minlength=len(different)), top_k)


def _kth(scores: np.ndarray, k: int) -> float:
    return float(np.partition(scores, len(scores) - k)[len(scores) - k])


def _best(numbers: np.ndarray, scores: np.ndarray, top_k: int) -> Ranking:
    if len(scores) > 4 * top_k:
        kept = scores >= _kth(scores, top_k)
        numbers, scores = numbers[kept], scores[kept]
    order = np.lexsort((numbers, -scores))[:top_k]
    return list(zip(numbers[order].tolist(), scores[order].tolist(), strict=True))

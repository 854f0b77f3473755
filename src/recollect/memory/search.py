"""Exact search over a base and a trial's edits: by angle, by words (BM25), or both.

The answer equals that of an index built afresh from the live entries. This is why BM25 is scored
here and not by bm25s: bm25s stores finished scores, and one edit changes the number of entries, the
average length and with them every score. Here only counts are stored, and a query scores them.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from recollect.memory.corpus import Corpus
from recollect.memory.edits import Edits
from recollect.memory.entries import Filter
from recollect.memory.words import words

Mode = Literal["dense", "bm25", "hybrid"]
MODES: tuple[Mode, ...] = get_args(Mode)

K1, B = 1.5, 0.75  # BM25 as Lucene scores it; bm25s has the same defaults
RRF_K = 60  # reciprocal rank fusion: a rank r counts 1 / (60 + r)
RRF_DEPTH = 100
"""Fusion looks at this many of each ranking, or at top_k if that is more."""

Ranking = list[tuple[int, float]]
"""(memory number, score), best first; equal scores in order of number."""


@dataclass(frozen=True, eq=False)
class Live:
    """The live entries of a base and edits, and those among them that a filter allows."""

    corpus: Corpus
    edits: Edits
    base: np.ndarray
    """bool [n]: base entries that are live"""
    own: np.ndarray
    """bool [slots]: edits that are live"""
    base_allowed: np.ndarray
    own_allowed: np.ndarray

    @classmethod
    def of(cls, corpus: Corpus, edits: Edits, where: Filter) -> Live:
        """Work out which entries a search may return."""
        base = np.ones(len(corpus), bool)
        base[edits.gone_positions()] = False
        own = edits.slots().alive
        base_allowed, own_allowed = base, own
        for keys in where.facets():
            in_base, in_own = np.zeros(len(base), bool), np.zeros(len(own), bool)
            for key in keys:
                in_base[corpus.facets.get(key)[0]] = True
                in_own[edits.facet(key)] = True
            base_allowed, own_allowed = base_allowed & in_base, own_allowed & in_own
        return cls(corpus, edits, base, own, base_allowed, own_allowed)

    def numbers(self) -> list[int]:
        """Return the numbers of all allowed entries, in order."""
        base, own = np.flatnonzero(self.base_allowed) + 1, self._own_numbers[self.own_allowed]
        return np.sort(np.concatenate([base, own])).tolist()

    @property
    def _own_numbers(self) -> np.ndarray:
        return self.edits.slots().numbers

    def bm25(self, query: str, top_k: int) -> Ranking:
        """Rank the allowed entries that share a word with the query."""
        slots, lengths = self.edits.slots(), self.corpus.lengths
        gone_words = int(lengths[self.edits.gone_positions()].sum(dtype=np.int64))
        own_words = int(slots.lengths[self.own].sum())
        n = int(np.count_nonzero(self.base)) + int(np.count_nonzero(self.own))
        mean = max(1, self.corpus.total_words - gone_words + own_words) / max(1, n)
        base_scores, own_scores = np.zeros(len(self.base)), np.zeros(len(self.own))
        # A word that stands twice in the query counts twice. Words are added up in the order of
        # the query, so that an entry's score has the same bits in the base and in the edits.
        for word, times in Counter(words(query)).items():
            positions, counts = self.corpus.terms.get(word)
            own_positions, own_counts = self.edits.term(word)
            df = int(np.count_nonzero(self.base[positions]))
            df += int(np.count_nonzero(self.own[own_positions]))
            weight = times * math.log(1 + (n - df + 0.5) / (df + 0.5))
            base_scores[positions] += weight * _saturation(counts, lengths[positions], mean)
            own_lengths = slots.lengths[own_positions]
            own_scores[own_positions] += weight * _saturation(own_counts, own_lengths, mean)
        base = np.flatnonzero((base_scores > 0) & self.base_allowed)
        own = np.flatnonzero((own_scores > 0) & self.own_allowed)
        numbers = np.concatenate([base + 1, slots.numbers[own]])
        return _best(numbers, np.concatenate([base_scores[base], own_scores[own]]), top_k)

    def dense(self, query: np.ndarray, top_k: int) -> Ranking:
        """Rank the allowed entries by the cosine of their angle to a unit vector."""
        query = np.ascontiguousarray(query, np.float32)
        base, own = np.flatnonzero(self.base_allowed), np.flatnonzero(self.own_allowed)
        parts = ((self.corpus.vectors, base), (self.edits.vectors, own))
        scores = np.concatenate([_cosines(vectors, at, query) for vectors, at in parts])
        if len(scores) > top_k:
            # BLAS rounds a row differently depending on where it stands, which would let chance
            # order equal vectors. So it only picks candidates, with a margin above its error
            # (d * 2^-24 for unit vectors), and those are scored again, each row by itself.
            margin = 2.1 * len(query) * 2.0**-24
            chosen = scores >= _kth(scores, top_k) - margin
            base, own = base[chosen[: len(base)]], own[chosen[len(base) :]]
        parts = ((self.corpus.vectors, base), (self.edits.vectors, own))
        rows = [vectors[at] for vectors, at in parts if vectors is not None and len(at)]
        if not rows:
            return []
        exact = (np.concatenate(rows).astype(np.float64) * query).sum(axis=1)
        return _best(np.concatenate([base + 1, self._own_numbers[own]]), exact, top_k)


def fuse(rankings: list[Ranking], top_k: int) -> Ranking:
    """Merge rankings by reciprocal rank: what several put high comes first."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, (number, _) in enumerate(ranking, start=1):
            scores[number] = scores.get(number, 0.0) + 1 / (RRF_K + rank)
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:top_k]


def _saturation(counts: np.ndarray, lengths: np.ndarray, mean: float) -> np.ndarray:
    """Score how much a word says about entries of these lengths that have it so often."""
    return counts / (counts + K1 * (1 - B + B * lengths / mean))


def _cosines(vectors: np.ndarray | None, positions: np.ndarray, query: np.ndarray) -> np.ndarray:
    if vectors is None or not len(positions):
        return np.zeros(0, np.float32)
    if 4 * len(positions) < len(vectors):
        return vectors[positions] @ query
    return (vectors @ query)[positions]  # more work, but no copy of the base


def _kth(scores: np.ndarray, k: int) -> float:
    return float(np.partition(scores, len(scores) - k)[len(scores) - k])


def _best(numbers: np.ndarray, scores: np.ndarray, top_k: int) -> Ranking:
    if len(scores) > 4 * top_k:
        kept = scores >= _kth(scores, top_k)
        numbers, scores = numbers[kept], scores[kept]
    order = np.lexsort((numbers, -scores))[:top_k]
    return list(zip(numbers[order].tolist(), scores[order].tolist(), strict=True))

"""The text read so far, in passages that can be searched by words or by meaning.

Nothing that has not been read can be found, and nothing of it counts in a score. Knows nothing of
agents or tools.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property

from recollect.chat.rendering import Tokenizer
from recollect.memory.corpus import Corpus
from recollect.memory.search import K1, B, Mode
from recollect.memory.store import Embed, Hit, Store
from recollect.memory.terms import words


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


class WordIndex:
    """Passages of a text that is all there, ranked by BM25; nothing is read before a search."""

    def __init__(self, text: str, size: int = 1000) -> None:
        self.text = text
        self.size = size
        """Characters of a passage; longer lines are cut at spaces."""

    @cached_property
    def passages(self) -> list[str]:
        """The text in pieces."""
        found: list[str] = []
        for piece in packed(self.text, self.size):
            while len(piece) > self.size:
                at = piece.rfind(" ", 1, self.size) + 1 or self.size
                found.append(piece[:at])
                piece = piece[at:]
            found += [piece] if piece.strip() else []
        return found

    @cached_property
    def _places(self) -> tuple[dict[str, list[tuple[int, int]]], list[int]]:
        """Where each word is, how often, and the words of each passage."""
        places: dict[str, list[tuple[int, int]]] = {}
        lengths = []
        for number, passage in enumerate(self.passages):
            own = words(passage)
            lengths.append(len(own))
            for word, times in Counter(own).items():
                places.setdefault(word, []).append((number, times))
        return places, lengths

    def search(self, query: str, top_k: int) -> list[str]:
        """Return the best passages that share a word with the query; equal ones in order."""
        places, lengths = self._places
        mean = max(1, sum(lengths)) / max(1, len(lengths))
        scores: dict[int, float] = {}
        for word, asked in Counter(words(query)).items():
            own = places.get(word, [])
            weight = asked * math.log(1 + (len(lengths) - len(own) + 0.5) / (len(own) + 0.5))
            for number, times in own:
                norm = K1 * (1 - B + B * lengths[number] / mean)
                scores[number] = scores.get(number, 0.0) + weight * times / (times + norm)
        best = sorted(scores, key=lambda number: (-scores[number], number))[:top_k]
        return [self.passages[number] for number in best]


_SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]»]*\s++(?![a-z])|[。！？][”’」』）]*\s*|\n\s*")


def sentences(text: str) -> Iterator[str]:
    """Cut a text after its sentences and lines, roughly: an abbreviation may end one.

    The space after a sentence is part of it: together they are the text again.
    """
    text = text.strip()
    begin = 0
    for found in _SENTENCE_END.finditer(text):
        yield text[begin : found.end()]
        begin = found.end()
    if begin < len(text):
        yield text[begin:]


def packed_sentences(text: str, size: int | None, tokenizer: Tokenizer) -> Iterator[str]:
    """Cut a text into passages of about `size` tokens, at sentence ends; None: one sentence each.

    A sentence that is longer is cut.
    """
    if size is None:
        yield from sentences(text)
        return
    held, length = "", 0
    for sentence in sentences(text):
        for piece in _halved(sentence, size, tokenizer):
            more = len(tokenizer.encode(piece))
            if held.strip() and length + more > size:
                yield held
                held, length = "", 0
            held, length = held + piece, length + more
    if held:
        yield held


def _halved(text: str, size: int, tokenizer: Tokenizer) -> Iterator[str]:
    if len(text) < 2 or len(tokenizer.encode(text)) <= size:
        yield text
        return
    middle = len(text) // 2
    at = text.rfind(" ", 1, middle) + 1 or middle
    yield from _halved(text[:at], size, tokenizer)
    yield from _halved(text[at:], size, tokenizer)


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

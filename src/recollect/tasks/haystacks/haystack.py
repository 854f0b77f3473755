"""Haystacks: long texts made sentence by sentence, and needles planted into them.

A text is never held whole: a chunk is put together when it is asked for, from where its sentences
start in a source that repeats. Knows nothing of what the needles say or of questions.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from random import Random
from typing import Literal, Protocol

import numpy as np

from recollect.errors import UserError
from recollect.foreign import storable
from recollect.tasks.files.lazy import Lazy
from recollect.tasks.files.unpacked import read_bytes
from recollect.tasks.lengths import BYTES_PER_TOKEN

Position = Literal["any", "first", "middle", "last"]
"""The position of the evidence: anywhere, or in the tenth of the text that the word names."""

BANDS: dict[Position, tuple[float, float]] = {
    "any": (0.0, 1.0),
    "first": (0.0, 0.1),
    "middle": (0.45, 0.55),
    "last": (0.9, 1.0),
}

NOISE = (
    "The kettle is on the stove.",
    "The rain has stopped for now.",
    "A road leads down to the river.",
    "Off we go, and home we come.",
)
"""What is said over and over where a text should say nothing."""

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)]*\s+(?=[\"'“‘(]*[A-Z])")
_START = re.compile(r"^\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG.*$", re.MULTILINE)
_END = re.compile(r"^\*\*\* ?END OF (?:THE|THIS) PROJECT GUTENBERG.*$", re.MULTILINE)
_BOOKS = "give a folder of public-domain books as .txt or .txt.gz, such as Project Gutenberg's"
_LONGEST = 600
"""Characters of a sentence: a book may have a list of a page without a full stop."""


def weigh(text: str) -> float:
    """Return a text's tokens by the fixed estimate, with fractions: sentences are added up."""
    return len(storable(text).encode()) / BYTES_PER_TOKEN


class Haystack(Protocol):
    """Endless sentences, and how many of them fill a number of tokens."""

    def sentence(self, index: int) -> str:
        """Return a sentence; the same index always gives the same one."""

    def fitting(self, tokens: float) -> int:
        """Return how many of the first sentences fit into this many tokens."""


@dataclass(frozen=True)
class Cycle:
    """A source of sentences that starts somewhere and begins again after its end."""

    source: Sentences
    start: int = 0

    def sentence(self, index: int) -> str:
        return self.source.sentences[(self.start + index) % len(self.source.sentences)]

    def fitting(self, tokens: float) -> int:
        ends = self.source.ends
        before = ends[self.start - 1] if self.start else 0.0
        laps, rest = divmod(before + tokens, ends[-1])
        return int(laps * len(ends) + np.searchsorted(ends, rest, side="right")) - self.start


@dataclass(frozen=True)
class Listing:
    """Sentences made from their number, all of about the same length."""

    make: Callable[[int], str]
    each: float
    """Tokens of one of them, on average."""

    @classmethod
    def measured(cls, make: Callable[[int], str], sample: int = 256) -> Listing:
        """Take the average over the first sentences."""
        return cls(make, sum(weigh(make(i) + "\n") for i in range(sample)) / sample)

    def sentence(self, index: int) -> str:
        return self.make(index)

    def fitting(self, tokens: float) -> int:
        return int(tokens / self.each)


@dataclass(frozen=True)
class Sentences:
    """Sentences of books, or of anything, with the tokens up to the end of each."""

    sentences: tuple[str, ...]

    @cached_property
    def ends(self) -> np.ndarray:
        return np.cumsum([weigh(f"{text} ") for text in self.sentences], dtype=float)

    def cycle(self, rng: Random) -> Cycle:
        """Begin at a sentence drawn at random."""
        return Cycle(self, rng.randrange(len(self.sentences)))


@dataclass(frozen=True)
class Planted(Lazy[str]):
    """The chunks of a haystack with needles in it, each made when it is asked for."""

    haystack: Haystack
    starts: tuple[int, ...]
    """The first sentence of every chunk."""
    end: int
    """How many sentences there are."""
    needles: tuple[tuple[int, str], ...]
    """The sentence that each precedes, in order, and what it says."""
    separator: str = " "

    def __len__(self) -> int:
        return len(self.starts)

    def chunk_of(self, needle: int) -> int:
        """Return the chunk that holds a needle."""
        return bisect_right(self.starts, self.needles[needle][0]) - 1

    def item(self, place: int) -> str:
        """Write a chunk."""
        start = self.starts[place]
        last = place + 1 == len(self.starts)
        end = self.end if last else self.starts[place + 1]
        needles = [at for at, _ in self.needles]
        low, high = bisect_left(needles, start), bisect_left(needles, end + last)
        texts: list[str] = []
        for at, needle in self.needles[low:high]:
            texts += map(self.haystack.sentence, range(start, at))
            texts.append(needle)
            start = at
        texts += map(self.haystack.sentence, range(start, end))
        return self.separator.join(texts)


def plant(
    haystack: Haystack,
    needles: Sequence[str],
    depths: Sequence[float],
    tokens: int,
    chunk_tokens: int,
    separator: str = " ",
) -> Planted:
    """Fill this many tokens with a haystack and put needles at depths from 0 (start) to 1 (end).

    Needles come in the order of their depths; those of equal depth keep the given order.
    """
    hay = tokens - sum(weigh(f"{needle} ") for needle in needles)
    end = haystack.fitting(hay)
    if end < 1:
        raise UserError(
            f"{tokens} tokens are too few for a text that hides {len(needles)} sentences",
            "ask for a longer text",
        )
    chunks = max(1, round(tokens / chunk_tokens))
    starts = sorted({min(end - 1, haystack.fitting(hay * i / chunks)) for i in range(chunks)})
    places = [min(end, haystack.fitting(hay * depth)) for depth in depths]
    planted = sorted(zip(places, needles, strict=True), key=lambda needle: needle[0])
    return Planted(haystack, tuple(starts), end, tuple(planted), separator)


def draw_depths(n: int, rng: Random, position: Position, depth: float | None) -> list[float]:
    """Draw the places of needles, from the start of the text to its end."""
    if depth is not None:
        return [depth] * n
    low, high = BANDS[position]
    return sorted(rng.uniform(low, high) for _ in range(n))


def check_place(position: Position, depth: float | None) -> None:
    """Refuse a place that does not exist."""
    if position not in BANDS:
        raise UserError(f"position is {position!r}", f"choose from {', '.join(BANDS)}")
    if depth is not None and not 0 <= depth <= 1:
        raise UserError(f"depth is {depth}", "set it between 0 (start) and 1 (end)")
    if depth is not None and position != "any":
        raise UserError("position and depth are both set", "set one of them")


def show_place(position: Position, depth: float | None) -> str:
    """Write a place as the end of a task's name."""
    if depth is not None:
        return f"-depth-{depth:g}"
    return "" if position == "any" else f"-{position}"


def check_lengths(tokens: int, chunk_tokens: int) -> None:
    """Refuse lengths that no text has."""
    if tokens < 1 or chunk_tokens < 1:
        raise UserError(
            f"a text of {tokens} tokens in chunks of {chunk_tokens} is impossible",
            "set both to 1 or more",
        )


def book_paths(folder: Path) -> list[Path]:
    """Return the books of a folder (.txt, plain or gzipped), in order of name."""
    try:
        names = sorted(path for path in folder.iterdir() if path.name.endswith((".txt", ".txt.gz")))
    except OSError as error:
        raise UserError(f"the folder of books {folder} cannot be read: {error}", _BOOKS) from None
    if not names:
        raise UserError(f"the folder of books {folder} holds no .txt and no .txt.gz", _BOOKS)
    return names


def read_books(folder: Path) -> Sentences:
    """Read the sentences of all books of a folder."""
    texts = []
    for path in book_paths(folder):
        try:
            texts.append(read_bytes(path).decode("utf-8-sig"))
        except (OSError, EOFError, zlib.error, ValueError) as error:
            raise UserError(f"the book {path} cannot be read: {error}", _BOOKS) from None
    sentences = _sentences(tuple(texts))
    if not sentences.sentences:
        raise UserError(f"the folder of books {folder} holds no text", _BOOKS)
    return sentences


@lru_cache(maxsize=2)
def _sentences(texts: tuple[str, ...]) -> Sentences:
    """Cut books into sentences, once for all families that read the same words."""
    return Sentences(tuple(s for text in texts for s in split_sentences(_without_licence(text))))


def _without_licence(text: str) -> str:
    """Leave out what Project Gutenberg puts before and after a book: it is not the book's."""
    start, end = _START.search(text), _END.search(text)
    return text[start.end() if start else 0 : end.start() if end else len(text)]


def split_sentences(text: str) -> list[str]:
    """Cut a text into sentences, roughly, and leave out lines of ornaments."""
    sentences = []
    for paragraph in re.split(r"\n\s*\n", text.replace("\r\n", "\n")):
        for sentence in _SENTENCE_END.split(" ".join(paragraph.split())):
            if any(char.isalpha() for char in sentence):
                sentences += _cut(sentence)
    return sentences


def _cut(sentence: str) -> list[str]:
    pieces = []
    while len(sentence) > _LONGEST:
        at = sentence.rfind(" ", 0, _LONGEST)
        at = at if at > 0 else _LONGEST
        pieces.append(sentence[:at])
        sentence = sentence[at:].lstrip()
    return [*pieces, sentence] if sentence else pieces

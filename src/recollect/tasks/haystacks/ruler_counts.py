"""RULER's counting tasks: common words (cwe) and frequent coded words (fwe), as published.

All of the text is needed for the answer. A text is an order of words held as numbers; its chunks
are written when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

import numpy as np

from recollect.errors import UserError
from recollect.tasks.files.lazy import Lazy
from recollect.tasks.haystacks.vocabulary import ADJECTIVES, NOUNS
from recollect.tasks.lengths import estimate_tokens

COMMON, OFTEN, SELDOM = 10, 30, 3
"""cwe: this many words come 30 times, all the others 3 times."""
ALPHA, ASKED, LETTERS = 2.0, 3, 6
"""fwe: how steeply frequencies fall, how many words are asked for, and letters of a word."""
DOTS = "..."
"""fwe: the most frequent of all, which does not count as a word."""
TOKENS_PER_CODED_WORD = 50
"""fwe: tokens of a text for each different word in it."""
_ZETA = float(np.pi**2 / 6)  # of ALPHA


@dataclass(frozen=True, eq=False)
class WordText(Lazy[str]):
    """Chunks of words in an order."""

    words: Sequence[str]
    order: np.ndarray
    """The word at each place."""
    chunks: int
    numbered: bool

    def __len__(self) -> int:
        return self.chunks

    def item(self, place: int) -> str:
        """Write a chunk."""
        start, end = (len(self.order) * i // self.chunks for i in (place, place + 1))
        return self.written(range(start, end))

    def written(self, places: Sequence[int]) -> str:
        """Write the words at some places."""
        if self.numbered:
            return " ".join(f"{i + 1}. {self.words[self.order[i]]}" for i in places)
        return " ".join(self.words[self.order[i]] for i in places)


@dataclass(frozen=True)
class Counted:
    """A text of words, and those that come most often."""

    text: WordText
    question: str
    answers: tuple[str, ...]


def common_words(tokens: int, chunk_tokens: int, rng: Random) -> Counted:
    """Make a numbered list in which ten words come far more often than the others."""
    common = rng.sample(_unmistakable(), COMMON)
    seldom = [word for word in (*ADJECTIVES, *NOUNS) if word not in common]
    rng.shuffle(seldom)
    adjectives, nouns = rng.sample(ADJECTIVES, len(ADJECTIVES)), rng.sample(NOUNS, len(NOUNS))
    nouns = [noun for noun in nouns if noun not in common]

    def word(index: int) -> str:
        """Words while there are any, then pairs of them."""
        if index < COMMON:
            return common[index]
        index -= COMMON
        if index < len(seldom):
            return seldom[index]
        rest, noun = divmod(index - len(seldom), len(nouns))
        rest, adjective = divmod(rest, len(adjectives))
        first = f"{adjectives[rest - 1]}-" if rest else ""
        return f"{first}{adjectives[adjective]}-{nouns[noun]}"

    def make(size: int) -> WordText:
        others = (size - COMMON * OFTEN) // SELDOM
        if others < COMMON:
            raise UserError(
                f"{tokens} tokens are too few for ten words that come {OFTEN} times each",
                "ask for at least 4k tokens",
            )
        words = [word(i) for i in range(COMMON + others)]
        counts = [OFTEN] * COMMON + [SELDOM] * others
        return _shuffled(words, counts, tokens, chunk_tokens, rng, numbered=True)

    text = _fitted(make, tokens)
    question = (
        f"The text is a numbered list of words. Which {COMMON} words come most often in it?"
        " Give them all, separated by commas."
    )
    return Counted(text, question, tuple(common))


def frequent_words(tokens: int, chunk_tokens: int, rng: Random) -> Counted:
    """Make a text of coded words whose frequencies fall by a power law."""
    words: dict[str, None] = {DOTS: None}
    while len(words) < max(2 * ASKED, tokens // TOKENS_PER_CODED_WORD):
        words["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=LETTERS))] = None
    coded = list(words)
    ranks = np.arange(1, len(coded) + 1, dtype=float)

    def make(size: int) -> WordText:
        counts = (size * ranks**-ALPHA / _ZETA).astype(int)
        return _shuffled(coded, counts, tokens, chunk_tokens, rng, numbered=False)

    text = _fitted(make, tokens)
    question = (
        f"The text is made of coded words; {DOTS} is no word. Which {ASKED} words come most often"
        " in it? Give them all, separated by commas."
    )
    return Counted(text, question, tuple(coded[1 : 1 + ASKED]))


def _fitted(make: Callable[[int], WordText], tokens: int) -> WordText:
    """Choose how many words fill a text, by measuring texts that are nearly right."""
    size = max(1, tokens // 3)
    for _ in range(4):
        text = make(size)
        # Evenly spaced places: numbers get longer towards the end.
        places = range(0, len(text.order), max(1, len(text.order) // 4000))
        each = estimate_tokens(text.written(places) + " ") / len(places)
        size = int(size * tokens / (each * len(text.order)))
    return make(size)


@cache
def _unmistakable() -> list[str]:
    """Return the nouns that are no part of another word, so that finding one means this one."""
    words = (*ADJECTIVES, *NOUNS)
    return [noun for noun in NOUNS if sum(noun in word for word in words) == 1]


def _shuffled(
    words: Sequence[str],
    counts: Sequence[int] | np.ndarray,
    tokens: int,
    chunk_tokens: int,
    rng: Random,
    *,
    numbered: bool,
) -> WordText:
    order = np.repeat(np.arange(len(words), dtype=np.int32), counts)
    np.random.default_rng(rng.getrandbits(63)).shuffle(order)
    chunks = max(1, min(len(order), round(tokens / chunk_tokens)))
    return WordText(words, order, chunks, numbered)

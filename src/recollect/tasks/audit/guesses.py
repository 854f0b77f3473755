"""What can be guessed without understanding a text: the answers that occur in it, and where.

A family may say what its answers can be (`Guessable`); otherwise they are the accepted answers of
all tasks that are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from recollect.types import Question, Task

_WORD = re.compile(r"[^\W_]+(?:[.,:'’-][^\W_]+)*")


@runtime_checkable
class Guessable(Protocol):
    """A family that knows what its answers can be."""

    def guesses(self, task: Task, question: Question | None = None) -> Sequence[str]:
        """Return the possible answers to a question, by its kind alone, or to any question."""


class Mention(NamedTuple):
    """A place in a text where a possible answer is named."""

    value: int
    """Its number among the phrases of the finder."""
    chunk: int
    at: int
    """Characters from the start of the chunk."""


class Finder:
    """Find phrases in texts, as whole words and in any case; the longest one where two begin."""

    def __init__(self, phrases: Iterable[str]) -> None:
        self.phrases: list[str] = []
        self._by_first: dict[str, list[tuple[tuple[str, ...], int]]] = {}
        known: dict[tuple[str, ...], int] = {}
        for phrase in phrases:
            words = split_words(phrase)
            if words and words not in known:
                known[words] = len(self.phrases)
                self.phrases.append(phrase)
                self._by_first.setdefault(words[0], []).append((words, known[words]))
        for found in self._by_first.values():
            found.sort(key=lambda pair: -len(pair[0]))

    def find(self, chunks: Sequence[str]) -> list[Mention]:
        """Return all mentions in the order of the text."""
        return [mention for c, text in enumerate(chunks) for mention in self._in(c, text)]

    def _in(self, chunk: int, text: str) -> list[Mention]:
        found = list(_WORD.finditer(text))
        words = [match[0].casefold() for match in found]
        mentions = []
        at = 0
        while at < len(words):
            step = 1
            for phrase, number in self._by_first.get(words[at], ()):
                if tuple(words[at : at + len(phrase)]) == phrase:
                    mentions.append(Mention(number, chunk, found[at].start()))
                    step = len(phrase)
                    break
            at += step
        return mentions


def split_words(text: str) -> tuple[str, ...]:
    """Return the words of a text by which phrases are compared."""
    return tuple(match[0].casefold() for match in _WORD.finditer(text))

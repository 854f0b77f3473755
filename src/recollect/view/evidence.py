"""Where an answer is in a text, and whether it is the one asked for. Pure functions.

A name may occur in a text for other reasons than the one a question asks about ("Tom likes mango").
An occurrence in a memory is therefore traced to the place in the text that it resembles most, and
counts only if that is a place that the question is about.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from recollect.metrics.answers import is_amount, tokens
from recollect.metrics.spans import YES_NO
from recollect.metrics.stemmer import stem
from recollect.types import Question

_PIECE = re.compile(r"[-+]?\d+(?:[.,:/-]\d+)*(?![^\W_])|[^\W_]+(?:['’.-][^\W_]+)*")
_BREAK = re.compile(r"[.;!?\n|]")
REACH = 20.0
"""How far around an answer words still say what it is about; a sentence's end counts as five."""
ENOUGH = 0.6
"""Share of the words of a supporting sentence that a memory must keep."""
_NUMBERS = {
    **{"zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6"},
    **{"seven": "7", "eight": "8", "nine": "9", "ten": "10", "eleven": "11", "twelve": "12"},
}
SMALL = frozenset(
    tokens(
        "of in on at to for from by with and or but as is are was were be been do does did has have"
        " had it its this that these those which what who whom whose when where why how i you he"
        " she they we my your his her their our me him them us not no yes so than then there here"
        " about into over after before during"
    )
)
"""Words that say nothing about what a sentence is about."""

TITLES = frozenset(("dr", "mr", "mrs", "ms", "prof", "sir"))
"""What may be left out of a name."""


class Word(NamedTuple):
    """One word of a text."""

    norm: str
    start: int
    end: int
    at: float
    """Its place, in words; sentence ends and commas count as several."""


class Text:
    """A text as words with their places."""

    def __init__(self, text: str, hidden: Sequence[tuple[int, int]] = ()) -> None:
        """Read a text; what is hidden is passed over as if it were far away."""
        self.text = text
        self.hidden = hidden

    @cached_property
    def words(self) -> list[Word]:
        """All words that say something."""
        found: list[Word] = []
        at, last, text = 0.0, 0, self.text
        for match in _PIECE.finditer(text):
            start, end = match.span()
            norm = _norm(text[start : min(end, start + 100)])
            if not norm:
                continue
            if start - last == 1 and text[last] == " ":  # by far the most frequent gap
                at += 1
            else:
                gap = text[last:start]
                at += 1 + (5 if _BREAK.search(gap) else 2 if "," in gap else 0)
            last = end
            if not any(low <= start < high for low, high in self.hidden):
                found.append(Word(norm, start, end, at))
        return found

    @cached_property
    def norms(self) -> frozenset[str]:
        """The different words."""
        return frozenset(word.norm for word in self.words)

    def around(self, first: int, last: int) -> dict[str, float]:
        """Return the words near words `first` to `last`, nearer ones with more weight."""
        low, high = self.words[first].at, self.words[last].at
        near: dict[str, float] = {}
        for i in self._reached(first, -1, low):
            _heavier(near, self.words[i], low - self.words[i].at)
        for i in self._reached(last, 1, high):
            _heavier(near, self.words[i], self.words[i].at - high)
        return near

    def _reached(self, start: int, step: int, at: float) -> Iterable[int]:
        i = start + step
        while 0 <= i < len(self.words) and abs(self.words[i].at - at) <= REACH:
            yield i
            i += step


@lru_cache(maxsize=256)
def read(text: str, hidden: tuple[tuple[int, int], ...] = ()) -> Text:
    """Return a text as words; memories and prompts that come again are read once."""
    return Text(text, hidden)


def _heavier(near: dict[str, float], word: Word, distance: float) -> None:
    if word.norm not in SMALL:
        near[word.norm] = max(near.get(word.norm, 0.0), 1 / (1 + distance))


@lru_cache(maxsize=1 << 16)
def _norm(piece: str) -> str:
    norm = "".join(tokens(piece))
    if norm in _NUMBERS:
        return _NUMBERS[norm]
    return stem(norm) if len(norm) > 3 and norm.isalpha() and norm.isascii() else norm


@dataclass(frozen=True)
class Found:
    """One occurrence of an answer."""

    start: int
    end: int
    near: Mapping[str, float]
    """The words around it, by weight."""


def find(text: Text, answer: str) -> list[Found]:
    """Find an answer: its words together, in any order, numbers all of them."""
    gold = [word.norm for word in Text(answer).words]
    gold = [norm for norm in gold if norm not in TITLES] or gold
    if not gold or not text.words or text.norms.isdisjoint(gold):
        return []
    wanted = frozenset(gold)
    needed = math.ceil(0.8 * len(wanted))
    numbers = {norm for norm in wanted if norm[:1].isdigit() or norm[1:2].isdigit()}
    hits = [i for i, word in enumerate(text.words) if word.norm in wanted]
    found: list[Found] = []
    taken = -1
    for n, first in enumerate(hits):
        if first <= taken:
            continue
        last, met = first, set()
        for i in hits[n:]:
            if i - first >= 2 * len(wanted):
                break
            met.add(text.words[i].norm)
            last = i
            if met == wanted:
                break
        if len(met) >= needed and numbers <= met:
            taken = last
            start, end = text.words[first].start, text.words[last].end
            found.append(Found(start, end, text.around(first, last)))
    return found


@dataclass(frozen=True)
class Trail:
    """What to look for to know whether a text holds the answer to a question."""

    question: Question
    asked: frozenset[str]
    """What the question says."""
    own: frozenset[str] = frozenset()
    """Words around the answer only where the text tells it ..."""
    other: frozenset[str] = frozenset()
    """... and only where the text says the same words about something else."""
    support: frozenset[str] = frozenset()
    """Where the answer is not said in the text: the words of the sentences it follows from."""

    @property
    def literal(self) -> bool:
        """Whether the answer itself is looked for."""
        return not self.support and not _is_yes_or_no(self.question)

    def places(self, text: Text) -> list[tuple[int, int]]:
        """Return where a text holds the answer, or what it follows from."""
        if self.literal:
            spans = [self._spans(text, answer) for answer in self.question.answers]
            if self.question.every and not all(spans):
                return []
            return sorted({span for own in spans for span in own})
        words = self.support or self.asked
        met = [word for word in text.words if word.norm in words]
        share = len({word.norm for word in met}) / len(words) if words else 0.0
        return [(word.start, word.end) for word in met] if share >= ENOUGH else []

    def holds(self, text: Text) -> bool:
        """Tell whether a text holds the answer."""
        return bool(self.places(text))

    def _spans(self, text: Text, answer: str) -> list[tuple[int, int]]:
        return [(f.start, f.end) for f in find(text, answer) if self._is_right(f.near)]

    def _is_right(self, near: Mapping[str, float]) -> bool:
        """Tell what an occurrence is about by the words around it; one without any may be right."""
        own = sum(near[word] for word in self.own & near.keys())
        return own >= sum(near[word] for word in self.other & near.keys())


def trail(question: Question, texts: Sequence[Text], evidence: Sequence[Text] = ()) -> Trail:
    """Work out what to look for, from all that an episode read.

    `evidence` is the part of the text that holds what the answer needs, where that is known.
    """
    asked = frozenset(w.norm for w in Text(question.text).words if w.norm not in SMALL)
    if not _is_yes_or_no(question):
        places = [f.near for text in texts for a in question.answers for f in find(text, a)]
        sure = [f.near for text in evidence for a in question.answers for f in find(text, a)]
        if places or sure:
            return _literal(question, asked, places, sure)
        if not evidence and not any(map(is_amount, question.answers)):
            return Trail(question, asked)
    return Trail(question, asked, support=_support(asked, evidence or texts))


def _literal(
    question: Question,
    asked: frozenset[str],
    places: Sequence[Mapping[str, float]],
    sure: Sequence[Mapping[str, float]],
) -> Trail:
    """Tell the places that a question is about from others: by words that not all of them share."""
    if sure:
        right = list(sure)
    else:
        shared = frozenset.intersection(*(frozenset(place) for place in places))
        score = [sum(p[word] for word in (asked & p.keys()) - shared) for p in places]
        right = [p for p, s in zip(places, score, strict=True) if s >= 0.75 * max(score)]
    own = asked.union(*right)
    other = frozenset().union(*(place for place in places if place not in right))
    return Trail(question, asked, own - (other - asked), other - own)


def _support(asked: frozenset[str], texts: Sequence[Text]) -> frozenset[str]:
    """Return the words of the sentences that share most words with a question."""
    sentences: list[tuple[float, frozenset[str]]] = []
    for text in texts:
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", _visible(text)):
            norms = frozenset(w.norm for w in Text(sentence).words if w.norm not in SMALL)
            if shared := len(norms & asked):
                sentences.append((shared / math.sqrt(len(norms)), norms))
    sentences.sort(key=lambda pair: -pair[0])
    best = sentences[0][0] if sentences else 0.0
    chosen = list(dict.fromkeys(norms for score, norms in sentences if score >= 0.6 * best))[:3]
    return frozenset().union(*chosen)


def _visible(text: Text) -> str:
    kept, at = [], 0
    for start, end in sorted(text.hidden):
        kept.append(text.text[at:start])
        at = max(at, end)
    return "\n".join([*kept, text.text[at:]])


def _is_yes_or_no(question: Question) -> bool:
    return all(answer.strip().lower() in YES_NO for answer in question.answers)

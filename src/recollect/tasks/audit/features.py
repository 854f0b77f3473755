"""What a rule can see of a text without its question: features of values and of documents.

Every feature is a rule twice, for its largest and for its smallest figure; another rule is one more
line here.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from recollect.memory.terms import words
from recollect.tasks.audit.guesses import Mention

Column = np.ndarray
"""float: one figure for every value, or for every document."""

_NUMBERED = re.compile(r"Document \d+:\n")
_SENTENCE = re.compile(r"[^.!?\n]*[.!?\n]?")
_NAME = re.compile(r"(?<=[a-z,;:'’] )[A-Z]\w+")


class MarkedText:
    """A text and the mentions of possible answers in it, for features to look at."""

    def __init__(self, chunks: Sequence[str], mentions: Sequence[Mention]) -> None:
        self.chunks = chunks
        self.values = sorted({mention.value for mention in mentions})
        place = {value: i for i, value in enumerate(self.values)}
        self.by_value: list[list[Mention]] = [[] for _ in self.values]
        self.by_chunk: list[list[Mention]] = [[] for _ in chunks]
        self.order: dict[Mention, int] = {}
        for i, mention in enumerate(mentions):
            self.by_value[place[mention.value]].append(mention)
            self.by_chunk[mention.chunk].append(mention)
            self.order[mention] = i
        self.lengths = [len(chunk) for chunk in chunks]

    def over(self, figure: Callable[[Mention], float], join: Callable[..., float]) -> Column:
        """Join a figure of all mentions of a value to one, such as their least."""
        return np.array([join([figure(m) for m in told]) for told in self.by_value], float)

    def form(self, mention: Mention) -> str:
        """Return the sentence around a mention without its names, values and numbers."""
        text, sentence = self.chunks[mention.chunk], self.sentence(mention)
        kept = [w for w in sentence.split() if not w[:1].isupper() and not w[:1].isdigit()]
        value = text[mention.at : mention.at + 40].split()[0].strip(".,;:!?")
        return " ".join(word for word in kept if word.strip(".,;:!?") != value)

    def sentence(self, mention: Mention) -> str:
        """Return the sentence around a mention, with the mark at its end."""
        text = self.chunks[mention.chunk]
        start = max(text.rfind(mark, 0, mention.at) for mark in (".", "!", "?", "\n")) + 1
        found = _SENTENCE.match(text, start)
        return (found[0] if found else "").strip()


def _mean(figures: Sequence[float]) -> float:
    return sum(figures) / len(figures)


def value_features(reading: MarkedText, phrases: Sequence[str]) -> dict[str, Column]:
    """Return every feature of every value that occurs in the text."""
    names = [phrases[value] for value in reading.values]
    ranks = {name: rank for rank, name in enumerate(sorted(set(names), key=str.casefold))}
    forms = {m: reading.form(m) for told in reading.by_value for m in told}
    common = Counter(forms.values())
    rarest = dict(zip(forms, _rarest([reading.sentence(m) for m in forms]), strict=True))
    at_form: dict[str, list[Mention]] = defaultdict(list)
    for mention in sorted(forms, key=lambda m: reading.order[m]):
        at_form[forms[mention]].append(mention)
    last_of_form = {told[-1] for told in at_form.values()}
    first_of_form = {told[0] for told in at_form.values()}
    return {
        "times mentioned": np.array([len(told) for told in reading.by_value], float),
        "chunks with it": np.array(
            [len({m.chunk for m in told}) for told in reading.by_value], float
        ),
        "letters": np.array([len(name) for name in names], float),
        "alphabet": np.array([ranks[name] for name in names], float),
        "size of its largest chunk": reading.over(lambda m: reading.lengths[m.chunk], max),
        "size of its smallest chunk": reading.over(lambda m: reading.lengths[m.chunk], min),
        "other values in its chunks": reading.over(lambda m: len(reading.by_chunk[m.chunk]), _mean),
        "form of its sentences": reading.over(lambda m: common[forms[m]], _mean),
        "sentences with its rarest mark": reading.over(rarest.__getitem__, min),
        "place of its first mention": reading.over(lambda m: reading.order[m], min),
        "place of its last mention": reading.over(lambda m: reading.order[m], max),
        "mean place": reading.over(lambda m: reading.order[m], _mean),
        "place in its chunk": reading.over(_share_of(reading), _mean),
        "odd chunks": reading.over(lambda m: m.chunk % 2, _mean),
        "first of a form": reading.over(lambda m: m in first_of_form, sum),
        "last of a form": reading.over(lambda m: m in last_of_form, sum),
        "distance to a name": reading.over(_name_distance(reading), min),
        "distance to its own kind": reading.over(_neighbour_distance(reading), min),
    }


ORDER_FREE = frozenset(
    (
        *("times mentioned", "chunks with it", "letters", "alphabet", "size of its largest chunk"),
        *("size of its smallest chunk", "other values in its chunks", "form of its sentences"),
        "sentences with its rarest mark",
    )
)
"""Features that say nothing about the order of the text: a question about the first or the latest
value of its kind must not be answered by these either."""


def _share_of(reading: MarkedText) -> Callable[[Mention], float]:
    return lambda m: m.at / max(1, reading.lengths[m.chunk])


def _name_distance(reading: MarkedText) -> Callable[[Mention], float]:
    names = [[found.start() for found in _NAME.finditer(text)] for text in reading.chunks]
    far = float(max(reading.lengths, default=0))
    return lambda m: min((abs(at - m.at) for at in names[m.chunk] if at != m.at), default=far)


def _neighbour_distance(reading: MarkedText) -> Callable[[Mention], float]:
    order = sorted(reading.order, key=lambda m: reading.order[m])

    def distance(mention: Mention) -> float:
        at = reading.order[mention]
        near = [order[i] for i in (at - 1, at + 1) if 0 <= i < len(order)]
        return min((abs(m.at - mention.at) for m in near if m.chunk == mention.chunk), default=1e4)

    return distance


# Documents


def document_features(chunks: Sequence[str]) -> dict[str, Column]:
    """Return every feature of every chunk."""
    bodies = [_NUMBERED.sub("", chunk, count=1) for chunk in chunks]
    titles = [_title(body) for body in bodies]
    terms = [words(body) for body in bodies]
    common = Counter(term for found in terms for term in set(found))
    titled = Counter(titles)
    count = len(chunks)
    middle = (count - 1) / 2
    return {
        "place": np.arange(count, dtype=float),
        "distance from the middle": np.abs(np.arange(count) - middle),
        "odd place": np.arange(count) % 2.0,
        "characters": np.array([len(body) for body in bodies], float),
        "words": np.array([len(found) for found in terms], float),
        "lines": np.array([body.count("\n") for body in bodies], float),
        "letters a word": np.array([_mean([len(t) for t in f] or [0]) for f in terms]),
        "words of its own": np.array([_mean([common[t] for t in f] or [0]) for f in terms]),
        "different words": np.array([len(set(f)) / max(1, len(f)) for f in terms]),
        "digits": np.array([_share(body, str.isdigit) for body in bodies]),
        "capitals": np.array([_share(body, str.isupper) for body in bodies]),
        "marks": np.array([_marks(body) / max(1, len(body)) for body in bodies]),
        "documents with its rarest mark": np.array(_rarest(bodies), float),
        "title ends in a number": np.array([_ends_in_number(title) for title in titles], float),
        "digits in the title": np.array([_share(title, str.isdigit) for title in titles]),
        "brackets in the title": np.array(["(" in title for title in titles], float),
        "characters of the title": np.array([len(title) for title in titles], float),
        "documents of that title": np.array([titled[title] for title in titles], float),
    }


def _title(body: str) -> str:
    first, found, _ = body.partition("\n")
    return first.strip() if found else ""


def _ends_in_number(title: str) -> bool:
    return bool(re.search(r"\d\W*$", title))


def _share(text: str, kind: Callable[[str], bool]) -> float:
    return sum(map(kind, text)) / max(1, len(text))


NAMES: Mapping[tuple[str, bool], str] = MappingProxyType(
    {
        ("times mentioned", False): "rarest value",
        ("times mentioned", True): "most frequent value",
        ("place of its first mention", False): "first value",
        ("place of its first mention", True): "value that comes up last",
        ("place of its last mention", True): "most recent value",
        ("place of its last mention", False): "value out of use longest",
        ("size of its largest chunk", True): "value in the longest chunk",
        ("letters", True): "longest value",
        ("letters", False): "shortest value",
        ("alphabet", False): "first by the alphabet",
        ("alphabet", True): "last by the alphabet",
        ("distance to a name", False): "value nearest to a name",
        ("place", False): "first document",
        ("place", True): "last document",
        ("distance from the middle", False): "document in the middle",
        ("characters", True): "longest document",
        ("characters", False): "shortest document",
        ("title ends in a number", True): "title that ends in a number",
        ("documents of that title", True): "most frequent title",
        ("documents of that title", False): "rarest title",
    }
)
"""What rules are called that people know by a name: a feature, and whether its most is taken."""


def _marks(text: str) -> int:
    return len(text) - sum(map(str.isalnum, text))


def _rarest(texts: Sequence[str]) -> list[int]:
    """Return for every text how many have its rarest mark: a sign, a kind of space, a letter that
    only looks like one of ASCII. Those without any have one of everybody's."""
    marks = [{c for c in set(text) if not (c.isascii() and c.isalnum())} for text in texts]
    common = Counter(mark for found in marks for mark in found)
    return [min((common[mark] for mark in found), default=len(texts)) for found in marks]

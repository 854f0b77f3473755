"""A reader of chronicles by rules: it takes every sentence apart and keeps what is true.

It proves that answers follow from the text alone, and teaches the form of a memory. Knows nothing
of how a text was drawn.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from recollect.tasks.made.chronicle_words import QUESTIONS, SENTENCES

_FIELDS = {
    "a": r"[A-Z]\w+ [A-Z]\w+",
    "b": r"[A-Z]\w+ [A-Z]\w+",
    "x": r"[A-Z]\w+",
    "y": r"[A-Z]\w+",
    "t": r"\w+ \w+",
    "d": r"\d+ [A-Z]\w+",
    "p": r"\w+",
    "q": r"\w+",
}


def _pattern(template: str) -> re.Pattern[str]:
    """Turn a template into what matches it; a field that comes again must say the same."""
    seen: set[str] = set()
    parts = []
    for piece in re.split(r"(\{\w\})", template):
        name = piece[1:-1] if piece.startswith("{") else ""
        if not name:
            parts.append(re.escape(piece))
        elif name in seen:
            parts.append(f"(?P={name})")
        else:
            seen.add(name)
            parts.append(f"(?P<{name}>{_FIELDS[name]})")
    return re.compile("".join(parts))


_PATTERNS = [(form, _pattern(text)) for form, texts in SENTENCES.items() for text in texts]
_ASKED = {kind: _pattern(text) for kind, text in QUESTIONS.items()}


@dataclass(frozen=True)
class Statement:
    """What a sentence, or two, say."""

    form: str
    fields: Mapping[str, str]


def statements(page: str) -> Iterator[Statement]:
    """Take a page apart; its title says nothing."""
    at = page.find("\n") + 1
    while at < len(page):
        for form, pattern in _PATTERNS:
            if found := pattern.match(page, at):
                yield Statement(form, found.groupdict())
                at = found.end() + 1
                break
        else:
            raise ValueError(f"a chronicle does not say {page[at : at + 80]!r}")


@dataclass
class Reader:
    """Everything that is true after the pages read so far."""

    towns: dict[str, str] = field(default_factory=dict)
    before: dict[str, str] = field(default_factory=dict)
    """The town before the latest move."""
    keepers: dict[str, str] = field(default_factory=dict)
    sent: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    received: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def read(self, page: str) -> None:
        """Take in a page."""
        for statement in statements(page):
            self.take(statement)

    def take(self, statement: Statement) -> None:
        """Take in a statement."""
        said = statement.fields
        match statement.form:
            case "set":
                self._move(said["a"], said["x"])
            case "cancel":
                if said["a"] in self.before:
                    self.towns[said["a"]] = self.before.pop(said["a"])
            case "exchange":
                self._move(said["a"], said["y"])
                self._move(said["b"], said["x"])
            case "handover":
                self.keepers[said["t"]] = said["a"]
            case "letter":
                self.sent[said["a"]].add(said["d"])
                self.received[said["b"]].add(said["d"])

    def _move(self, person: str, town: str) -> None:
        if person in self.towns:
            self.before[person] = self.towns[person]
        self.towns[person] = town

    def answer(self, question: str) -> str:
        """Answer a question; an empty text where nothing was said about it."""
        for kind, pattern in _ASKED.items():
            if found := pattern.fullmatch(question):
                if kind in ("sent", "received"):
                    days = self.sent if kind == "sent" else self.received
                    return str(len(days[found["a"]]))
                person = self.keepers.get(found["t"], "") if kind == "kept" else found["a"]
                return self.towns.get(person, "")
        raise ValueError(f"a chronicle does not answer {question!r}")


def solve(pages: Iterable[str], question: str) -> str:
    """Read all pages in their order, then answer."""
    reader = Reader()
    for page in pages:
        reader.read(page)
    return reader.answer(question)

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


def _pattern(template: str, number: str = "") -> str:
    """Turn a template into what matches it, with a group for every field."""
    parts = re.split(r"\{(\w)\}", template)
    return "".join(
        f"(?P<{part}{number}>{_FIELDS[part]})" if i % 2 else re.escape(part)
        for i, part in enumerate(parts)
    )


_TEMPLATES = [(form, text) for form, texts in SENTENCES.items() for text in texts]
_NAMED = [(form, sorted(set(re.findall(r"\{(\w)\}", text)))) for form, text in _TEMPLATES]
# One pattern for all sentences: whichever matches closes its own group last.
_STATEMENT = re.compile(
    "|".join(f"(?P<_{i}>{_pattern(text, str(i))})" for i, (_, text) in enumerate(_TEMPLATES))
)
_ASKED = {kind: re.compile(_pattern(text)) for kind, text in QUESTIONS.items()}


@dataclass(frozen=True)
class Statement:
    """What a sentence, or two, say."""

    form: str
    fields: Mapping[str, str]
    text: str


def statements(page: str) -> Iterator[Statement]:
    """Take a page apart; its title says nothing."""
    at = page.find("\n") + 1
    while at < len(page):
        found = _STATEMENT.match(page, at)
        if not found:
            raise ValueError(f"a chronicle does not say {page[at : at + 80]!r}")
        yield _statement(found)
        at = found.end() + 1


def found_statements(text: str) -> Iterator[Statement]:
    """Find the statements in any text, such as passages cut out of pages; the rest is skipped."""
    return map(_statement, _STATEMENT.finditer(text))


def _statement(found: re.Match[str]) -> Statement:
    number = str(found.lastgroup)[1:]
    form, names = _NAMED[int(number)]
    return Statement(form, {name: found[name + number] for name in names}, found[0])


@dataclass
class Reader:
    """Everything that is true after the pages read so far."""

    towns: dict[str, str] = field(default_factory=dict)
    before: dict[str, str] = field(default_factory=dict)
    """The town before the latest move."""
    keepers: dict[str, str] = field(default_factory=dict)
    sent: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    """The days of a person's letters, in the order of the text."""
    received: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))

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
                self.sent[said["a"]][said["d"]] = None
                self.received[said["b"]][said["d"]] = None

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

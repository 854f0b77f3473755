"""Questions with titled paragraphs, as data sets give them, before any long text is made of them.

`read_paragraphs` takes paragraphs from a file of any of the known shapes, for distractors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.errors import UserError
from recollect.tasks.files.records import read_records


@dataclass(frozen=True)
class Paragraph:
    """A piece of text under a title."""

    title: str
    text: str


@dataclass(frozen=True)
class Item:
    """A question with its own paragraphs; some of them hold the evidence."""

    id: str
    question: str
    answers: tuple[str, ...]
    """Every accepted answer, the best one first."""
    paragraphs: tuple[Paragraph, ...]
    gold: tuple[int, ...]
    """Which paragraphs hold the evidence, in the order of the data set."""
    category: str = ""


@dataclass(frozen=True)
class DroppedRecord:
    """A record that is no item, and why: it has no answer, or evidence that is not there."""

    place: str
    reason: str
    detail: str = ""
    """What should not be so in a whole file; empty where leaving it out is the rule."""


@dataclass(frozen=True)
class DocumentSource:
    """A data set of questions with paragraphs: how it is read and where it comes from."""

    name: str
    read: Callable[[Sequence[Path]], Iterator[Item | DroppedRecord]]
    official: str
    """What the official files are called, and where to get them."""
    one_per_title: bool = True
    """Whether a title names one passage, or an article of many."""
    looks_up: bool = True
    """Whether items may name paragraphs that are in a file of their own."""


def field_of(record: Mapping[str, Any], name: str, kind: type, place: str) -> Any:
    """Return a field of a record, or say where it is missing or of another kind."""
    value = record.get(name)
    if not isinstance(value, kind):
        found = f"is {str(value)[:40]!r}" if name in record else "is missing"
        raise UserError(
            f"{place}: {name!r} {found}",
            f"check that it is the right file: {name} is a {_word(kind)}",
        )
    return value


def answer_of(record: Mapping[str, Any], place: str) -> str:
    """Return a record's answer as text; a year may be written as a number."""
    value = record.get("answer")
    if isinstance(value, (int, float)):
        return str(value)
    return str(field_of(record, "answer", str, place))


def titled(record: Mapping[str, Any], place: str, join: str) -> list[Paragraph]:
    """Read a context as HotpotQA and 2WikiMultihopQA write it: a title and a list of sentences."""
    try:
        context = columns(record["context"], "title", "sentences")
        pairs = [(title, join.join(sentences)) for title, sentences in context]
        return [Paragraph(str(title), text) for title, text in pairs]
    except (KeyError, TypeError, ValueError):
        raise UserError(
            f"{place}: 'context' is not a list of a title and sentences",
            "use the distractor files, whose items carry their paragraphs",
        ) from None


def columns(value: Any, *names: str) -> list[Any]:
    """Return a list of tuples, also where it is written as Parquet copies have it: by column."""
    if isinstance(value, Mapping):
        return list(zip(*(value[name] for name in names), strict=True))
    return list(value)


def unique(texts: Iterable[Any]) -> tuple[str, ...]:
    """Keep the different texts in their order, without what is empty."""
    return tuple(dict.fromkeys(text for text in map(str, texts) if text.strip()))


def read_paragraphs(path: Path) -> Iterator[Paragraph]:
    """Read the paragraphs of a file of any known shape; questions in it do not count."""
    for place, record in read_records(path):
        if "context" in record:
            yield from titled(record, place, "" if _spaced(record) else " ")
        elif "paragraphs" in record:
            for p in field_of(record, "paragraphs", list, place):
                yield Paragraph(p["title"], p.get("paragraph_text") or p["text"])
        elif "data" in record:
            for article in field_of(record, "data", list, place):
                for p in article["paragraphs"]:
                    yield Paragraph(article["title"].replace("_", " "), p["context"])
        elif "ctxs" in record:
            for p in field_of(record, "ctxs", list, place):
                yield Paragraph(p["title"], p["text"])
        elif "text" in record:
            title, text = (field_of(record, name, str, place) for name in ("title", "text"))
            yield Paragraph(title, text)


def _spaced(record: Mapping[str, Any]) -> bool:
    """Say whether the sentences bring their own spaces, as HotpotQA's do."""
    context = columns(record["context"], "title", "sentences")
    later = [s for _, sentences in context for s in sentences[1:] if s]
    return any(sentence[0].isspace() for sentence in later)


def _word(kind: type) -> str:
    return {str: "text", list: "list", dict: "object", bool: "true or false"}.get(kind, "number")

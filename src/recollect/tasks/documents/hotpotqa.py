"""HotpotQA: questions over two Wikipedia paragraphs, made as long as one likes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from recollect.tasks.documents.documents import DocumentTasks
from recollect.tasks.documents.paragraphs import (
    DocumentSource,
    DroppedRecord,
    Item,
    Paragraph,
    answer_of,
    columns,
    field_of,
    titled,
    unique,
)
from recollect.tasks.files.records import read_records

OFFICIAL = (
    "hotpot_train_v1.1.json and hotpot_dev_distractor_v1.json from https://hotpotqa.github.io"
    " (CC BY-SA 4.0)"
)


@dataclass(frozen=True)
class HotpotQA(DocumentTasks):
    """HotpotQA's questions among as many documents as one likes."""

    name: ClassVar[str] = "hotpotqa"
    published: ClassVar[bool] = True
    folder: Path = Path("data/hotpotqa")


def read_hotpotqa(paths: Sequence[Path]) -> Iterator[Item | DroppedRecord]:
    """Read the distractor setting's files: each item has its paragraphs and supporting facts."""
    return read_supported(paths, join="")


def read_supported(paths: Sequence[Path], join: str) -> Iterator[Item | DroppedRecord]:
    """Read items with supporting facts; those without paragraphs of their own come last.

    They take the paragraphs of their evidence from a file of paragraphs among the others.
    """
    known: dict[str, str] = {}
    bare = []
    for path in paths:
        for place, record in read_records(path):
            if "text" in record:
                known[str(record.get("title"))] = str(record["text"])
            elif "context" in record or "supporting_facts" not in record:
                yield _supported(record, place, titled(record, place, join))
            else:
                bare.append((place, record))
    for place, record in bare:
        names = dict.fromkeys(fact[0] for fact in _facts(record, place))
        found = [Paragraph(name, known[name]) for name in names if name in known]
        yield _supported(record, place, found)


def _supported(
    record: dict[str, Any], place: str, paragraphs: Sequence[Paragraph]
) -> Item | DroppedRecord:
    """Make an item of a record whose supporting facts name titles of the paragraphs."""
    at = {paragraph.title: i for i, paragraph in reversed(list(enumerate(paragraphs)))}
    names = unique(fact[0] for fact in _facts(record, place))
    missing = [name for name in names if name not in at]
    if missing or not names:
        return DroppedRecord(place, "evidence not found", ", ".join(missing) or "none is named")
    answers = unique([answer_of(record, place)])
    if not answers:
        return DroppedRecord(place, "no answer", "it is empty")
    return Item(
        str(record.get("_id") or record.get("id") or place),
        field_of(record, "question", str, place).strip(),
        answers,
        tuple(paragraphs),
        tuple(at[name] for name in names),
        str(record.get("type", "")),
    )


def _facts(record: dict[str, Any], place: str) -> list[Any]:
    """Return pairs of a title and a sentence's number."""
    if isinstance(record.get("supporting_facts"), dict):
        return columns(record["supporting_facts"], "title", "sent_id")
    found: list[Any] = field_of(record, "supporting_facts", list, place)
    return found


HOTPOTQA = DocumentSource("hotpotqa", read_hotpotqa, OFFICIAL)

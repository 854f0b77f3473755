"""SQuAD: questions over one Wikipedia paragraph, made long as HotpotQA is.

An item's own paragraphs are the one with the answer and up to nine others of the same article, so
that the title alone does not give the evidence away. Questions without an answer (version 2) are
left out: others of the thousands of paragraphs may well answer them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from recollect.seeds import derive
from recollect.tasks.documents.documents import DocumentTasks
from recollect.tasks.documents.paragraphs import (
    DocumentSource,
    DroppedRecord,
    Item,
    Paragraph,
    field_of,
    unique,
)
from recollect.tasks.files.records import read_records

if TYPE_CHECKING:
    from recollect.tasks.documents.document_files import DocumentFolder, StoredItem

OFFICIAL = (
    "train-v1.1.json and dev-v1.1.json (or v2.0) from"
    " https://rajpurkar.github.io/SQuAD-explorer (CC BY-SA 4.0)"
)
NEIGHBOURS = 9
_CODE = re.compile(r" \[[a-z]{6}\]$")


@dataclass(frozen=True)
class Squad(DocumentTasks):
    """SQuAD's questions among as many documents as one likes."""

    name: ClassVar[str] = "squad"
    scorers: ClassVar[tuple[str, ...]] = ("squad_em", "squad_f1")
    folder: Path = Path("data/squad")

    def _cluster(self, item: StoredItem) -> dict[str, str]:
        return {"cluster": article_of(self._stored, item)}


def article_of(stored: DocumentFolder, item: StoredItem) -> str:
    """Return the title of the article that a question is about.

    Without the letters that scripts/split_squad.py puts behind it, paragraph by paragraph.
    """
    return _CODE.sub("", stored.passages[item.gold[0]].partition("\n")[0])


def read_squad(paths: Sequence[Path]) -> Iterator[Item | DroppedRecord]:
    """Read SQuAD's files, version 1.1 or 2.0."""
    for path in paths:
        for place, record in read_records(path):
            for article in field_of(record, "data", list, place):
                yield from _article(article, place)


def _article(article: dict[str, Any], place: str) -> Iterator[Item | DroppedRecord]:
    title = field_of(article, "title", str, place).replace("_", " ")
    rows = field_of(article, "paragraphs", list, place)
    texts = [Paragraph(title, field_of(row, "context", str, place)) for row in rows]
    for number, row in enumerate(rows):
        for asked in field_of(row, "qas", list, place):
            id = str(asked.get("id"))
            answers = unique(answer["text"] for answer in asked.get("answers") or ())
            if asked.get("is_impossible") or not answers:
                yield DroppedRecord(f"{place} question {id}", "unanswerable")
                continue
            # Keyed by the question: the same neighbours, whatever else is in the file.
            others = [text for i, text in enumerate(texts) if i != number]
            near = Random(derive("squad", id)).sample(others, min(NEIGHBOURS, len(others)))
            question = field_of(asked, "question", str, place).strip()
            yield Item(id, question, answers, (texts[number], *near), (0,))


SQUAD = DocumentSource("squad", read_squad, OFFICIAL, one_per_title=False, looks_up=False)

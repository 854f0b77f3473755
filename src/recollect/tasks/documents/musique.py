"""MuSiQue: questions of two to four hops over twenty paragraphs, made long as HotpotQA is.

Only answerable questions: what cannot be answered from its own paragraphs may well be from those of
others, and so would be no unanswerable question among thousands of documents.
"""

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
    field_of,
    unique,
)
from recollect.tasks.files.records import read_records

OFFICIAL = (
    "musique_ans_v1.0_train.jsonl and musique_ans_v1.0_dev.jsonl from"
    " https://github.com/StonyBrookNLP/musique (CC BY 4.0)"
)


@dataclass(frozen=True)
class Musique(DocumentTasks):
    """MuSiQue's questions among as many documents as one likes."""

    name: ClassVar[str] = "musique"
    scorers: ClassVar[tuple[str, ...]] = ("squad_em", "squad_f1")
    folder: Path = Path("data/musique")


def read_musique(paths: Sequence[Path]) -> Iterator[Item | DroppedRecord]:
    """Read MuSiQue's files; the evidence is in the order of the hops."""
    for path in paths:
        for place, record in read_records(path):
            yield _item(record, place)


def _item(record: dict[str, Any], place: str) -> Item | DroppedRecord:
    if not record.get("answerable", True):
        return DroppedRecord(place, "unanswerable")
    rows = field_of(record, "paragraphs", list, place)
    paragraphs = tuple(
        Paragraph(field_of(p, "title", str, place), field_of(p, "paragraph_text", str, place))
        for p in rows
    )
    hops = [hop.get("paragraph_support_idx") for hop in record.get("question_decomposition") or ()]
    by_idx = {row.get("idx", i): i for i, row in enumerate(rows)}
    marked = [i for i, row in enumerate(rows) if row.get("is_supporting")]
    gold = tuple(dict.fromkeys([by_idx[hop] for hop in hops if hop in by_idx] + marked))
    answers = unique([answer_of(record, place), *(record.get("answer_aliases") or ())])
    if not gold or not answers:
        return DroppedRecord(
            place, "evidence not found" if answers else "no answer", "it is missing"
        )
    category = str(record.get("id", "")).partition("__")[0]  # "2hop", "3hop1" and so on
    question = field_of(record, "question", str, place).strip()
    return Item(str(record.get("id") or place), question, answers, paragraphs, gold, category)


MUSIQUE = DocumentSource("musique", read_musique, OFFICIAL, one_per_title=False, looks_up=False)

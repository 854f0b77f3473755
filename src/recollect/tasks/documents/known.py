"""Which questions a model answers without any text: they measure what it knew, not what it read.

A file has one JSON object to a line: an `id`, and a `score` (anything above 0 is known) or the
model's `answers`, of which one right one is enough. MemAgent drops such questions: about half of
HotpotQA for a model of seven billion weights.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from recollect.errors import UserError
from recollect.metrics import SCORES
from recollect.tasks.documents.paragraphs import Item
from recollect.tasks.files.records import read_records
from recollect.types import Question

Known = Callable[[Item], bool]
"""Say whether a question is known; one that was never asked is an error."""


def read_closed_book(path: Path) -> Known:
    """Read a file of scores or answers into a test of items."""
    found: dict[str, Any] = {}
    asked: dict[str, str] = {}
    for place, record in read_records(path):
        if "id" not in record or ("score" in record) == ("answers" in record):
            raise UserError(f"{place} needs an id, and either a score or answers", _FIX)
        found[str(record["id"])] = record.get("score", record.get("answers"))
        if isinstance(record.get("question"), str):
            asked[str(record["id"])] = record["question"]

    def known(item: Item) -> bool:
        if item.id not in found:
            raise UserError(f"{path.name} has no entry for {item.id}", _FIX)
        if asked.get(item.id, item.question) != item.question:
            # Ids of files without any are names and lines, which other files have too.
            raise UserError(f"{path.name} is about another question than {item.id} now is", _FIX)
        said = found[item.id]
        if isinstance(said, int | float):
            return said > 0
        texts = [said] if isinstance(said, str) else [str(text) for text in said]
        return any(is_right(text, item.question, item.answers) for text in texts)

    return known


def is_right(text: str, question: str, answers: tuple[str, ...]) -> bool:
    """Judge as an evaluation of the same questions would: by the answer that a reply commits to.

    "I have no idea" does not know a question whose answer is no, and a list of names knows none.
    """
    asked = Question(question, answers)
    return any(SCORES[name](text, asked) for name in ("answer_match", "boxed_exact_match"))


_FIX = "write it with `recollect data closed-book`"

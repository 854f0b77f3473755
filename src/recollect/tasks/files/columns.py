"""Your own table: questions, texts and answers in the columns that you name.

`Rows` maps the columns of a Parquet file, a folder of them or a Hugging Face data set to tasks, and
says what it read, what it mapped and what it dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from recollect.errors import UserError
from recollect.tasks.base import Split, at_most, said_copies, text_of
from recollect.tasks.files.tables import RowBlocks, open_rows
from recollect.tasks.splits import deal, pick
from recollect.types import Question, Task

USUAL: Mapping[str, tuple[str, ...]] = {
    "question": ("question", "query", "q"),
    "context": ("context", "chunks", "text", "document", "documents", "passages"),
    "answers": ("answers", "answer", "gold", "target"),
    "id": ("id", "_id", "uid"),
    "category": ("category", "type"),
    "split": ("split",),
}
"""What a column may be called if it is not named."""
NEEDED = ("question", "context", "answers")
HELD_OUT = 0.1
"""The share of rows without a split that is held out."""


def read_columns(text: str) -> dict[str, str]:
    """Read `question=q,context=doc,answers=a`."""
    named: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        ours, equals, theirs = part.partition("=")
        if ours not in USUAL or not equals or not theirs:
            raise UserError(
                f"{part!r} does not map a column",
                f"write NAME=COLUMN, where NAME is one of {', '.join(USUAL)}:"
                " question=q,context=doc,answers=a",
            )
        named[ours] = theirs
    return named


@dataclass(frozen=True)
class Rows:
    """Tasks from the rows of a table; a tenth is held out where nothing names a split."""

    name: ClassVar[str] = "rows"
    metric: ClassVar[str] = "answer_match"
    source: str = ""
    """A Parquet file, a folder of them, a folder of `save_to_disk`, or a data set of the hub."""
    columns: str = ""
    """Which column holds what, such as question=q,context=doc,answers=a."""

    def size(self, split: Split) -> int:
        """Count the tasks of a split."""
        return len(self._found.places[split])

    def longer(self, times: int) -> Rows:
        """Refuse: the texts are as long as they are."""
        if times != 1:
            raise UserError(f"the rows of {self.source} have one length", "leave the length out")
        return self

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Read one task; training repeats in new orders, held-out tasks come once."""
        places = self._found.places[split]
        fix = at_most(len(places)) if places else "name a source with such rows"
        number = pick(places, index, seed, split, self.name, fix)
        block, at, row_number = number
        made = _task(self._blocks.row(block, at), self._named, row_number)
        assert isinstance(made, Task)
        return made

    def data_files(self) -> list[Path]:
        """Name the file or folder; a data set of the hub is known by its name."""
        path = Path(self.source).expanduser()
        return [path] if self.source and path.exists() else []

    @property
    def notes(self) -> tuple[str, ...]:
        """What was read, which columns mean what, and which rows were dropped."""
        found, named = self._found, self._named
        mapped = ", ".join(f"{ours} from {theirs}" for ours, theirs in named.items())
        lines = [
            f"{self.source}: {found.read:,} rows read, {self.size('train'):,} for training and"
            f" {self.size('test'):,} held out; {mapped}"
        ]
        unused = [name for name in self._blocks.columns if name not in named.values()]
        if unused:
            lines.append(f"{self.source}: columns not used: {', '.join(unused)}")
        for why, rows in found.dropped.items():
            lines.append(f"{self.source}: {len(rows):,} rows dropped, {why} (first: row {rows[0]})")
        if again := said_copies(found.texts[row] for *_, row in found.places["test"]):
            lines.append(f"{self.source}: {again}")
        return tuple(lines)

    @cached_property
    def _blocks(self) -> RowBlocks:
        if not self.source:
            raise UserError("the rows have no source", "name a file: --tasks parquet:FILE")
        return open_rows(self.source)

    @cached_property
    def _named(self) -> dict[str, str]:
        """Find the column of everything, or say which one is missing."""
        there, named = self._blocks.columns, read_columns(self.columns)
        for ours, theirs in named.items():
            if theirs not in there:
                raise UserError(
                    f"{self.source} has no column {theirs!r} for {ours}",
                    f"choose from {', '.join(there)}",
                )
        for ours, usual in USUAL.items():
            match = next((name for name in usual if name in there), None)
            if ours not in named and match:
                named[ours] = match
        missing = [ours for ours in NEEDED if ours not in named]
        if missing:
            raise UserError(
                f"{self.source} has no column for {', '.join(missing)}; it has {', '.join(there)}",
                f"map them: --columns {','.join(f'{name}=COLUMN' for name in missing)}",
            )
        return named

    @cached_property
    def _found(self) -> _Found:
        found = _Found()
        unsaid: list[tuple[int, int, int]] = []
        for split, block, at, row in self._blocks.rows():
            made = _task(row, self._named, found.read)
            place = (block, at, found.read)
            found.read += 1
            if isinstance(made, str):
                found.dropped.setdefault(made, []).append(place[2])
                continue
            found.texts[place[2]] = text_of(made)
            said = str(row.get(self._named.get("split", ""), "") or split)
            if said in ("train", "test"):
                found.places["train" if said == "train" else "test"].append(place)
            else:
                unsaid.append(place)
                found.names.append(made.id + made.questions[0].text)
        if not found.read:
            raise UserError(f"{self.source} has no rows", "name a table with rows")
        if not unsaid and not any(found.places.values()):
            why = Counter({why: len(rows) for why, rows in found.dropped.items()})
            raise UserError(
                f"none of the {found.read:,} rows of {self.source} is a task:"
                f" {why.most_common(1)[0][0]}",
                "map other columns with --columns",
            )
        for part, numbers in deal(found.names, 1 - HELD_OUT).items():
            found.places[part] += [unsaid[number] for number in numbers]
        return found


class _Found:
    def __init__(self) -> None:
        self.places: dict[Split, list[tuple[int, int, int]]] = {"train": [], "test": []}
        self.names: list[str] = []
        self.texts: dict[int, int | None] = {}
        """A hash of what is read of every row's task."""
        self.dropped: dict[str, list[int]] = {}
        self.read = 0


def _task(row: Mapping[str, Any], named: Mapping[str, str], number: int) -> Task | str:
    """Make a task of a row, or say why that is impossible."""
    question = row[named["question"]]
    chunks, answers = _texts(row[named["context"]]), _texts(row[named["answers"]])
    if not isinstance(question, str) or not question.strip():
        return "without a question that is a text"
    if not chunks:
        return "without a context of texts"
    if not answers:
        return "without an answer that is a text"
    own_id = row.get(named.get("id", ""))
    category = row.get(named.get("category", ""))
    return Task(
        str(number if own_id is None else own_id),
        tuple(chunks),
        (Question(question, tuple(answers), "" if category is None else str(category)),),
        Rows.name,
    )


def _texts(value: Any) -> list[str]:
    """Return the texts of a cell: one, several, or the `text` of a nested one (as SQuAD has)."""
    if isinstance(value, Mapping):
        value = value.get("text")
    if isinstance(value, bool) or value is None:
        return []
    items = value if isinstance(value, list) else [value]
    texts = [str(item) if isinstance(item, int | float) else item for item in items]
    if not all(isinstance(text, str) for text in texts):
        return []
    return [text for text in texts if text.strip()]

"""Your own data: one task to a line, as docs/data.md shows.

A line has `chunks` (texts that arrive in order) or one `text`, and `questions`; a line with one
question may give `question` and `answer` without the list. Lines are checked when the file is
opened and read when they are asked for, so a file may be larger than memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from recollect.errors import UserError, near
from recollect.files import loads
from recollect.foreign import decoded
from recollect.seeds import derive
from recollect.tasks.base import Split, at_most, said_copies, text_of
from recollect.tasks.files.records import refuse_folder
from recollect.tasks.lengths import bytes_per_token
from recollect.tasks.splits import deal
from recollect.types import Question, Task

ASKED = {"question", "answer", "answers", "category", "evidence", "position"}
"""What is read of a question."""
LINE = {"id", "text", "chunks", "questions", "split", "source", "meta"}
"""What is read of a line, beside its one question."""
MOST = 8
"""Unused keys that are named."""
HELP = 'write {"text": "...", "question": "...", "answer": "..."}; docs/data.md has the rest'


@dataclass(frozen=True)
class Jsonl:
    """Tasks from a file of JSON lines; `held_out` is for those that name no split."""

    name: ClassVar[str] = "jsonl"
    metric: ClassVar[str] = "answer_match"
    file: Path = Path("data/jsonl/tasks.jsonl")
    held_out: float = 1.0
    """The share of the lines without a split that is held out; training needs less than 1."""

    def size(self, split: Split) -> int:
        """Count the tasks of a split."""
        return len(self._found.places[split])

    def longer(self, times: int) -> Jsonl:
        """Refuse: the texts are as long as they are."""
        if times != 1:
            raise UserError(f"{self.file.name} has one length", "leave the length out")
        return self

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Read one task; training goes round in a new order, held-out ones come as they are."""
        lines = self._found.places[split]
        lap, at = divmod(index, max(1, len(lines)))
        if not lines or (lap and split == "test"):
            raise UserError(
                f"{near(self.file)} holds {len(lines)} {split} tasks, not {index + 1}",
                at_most(len(lines)) if lines else f'give some lines "split": "{split}"',
            )
        if split == "train":
            order = list(range(len(lines)))
            Random(derive(seed, self.name, split, lap)).shuffle(order)
            at = order[at]
        number, start = lines[at]
        with self.file.open("rb") as file:
            file.seek(start)
            place = f"{self.file.name} line {number}"
            return parse_task(_loaded(*decoded(file.readline()), place), place)

    @cached_property
    def _found(self) -> _Found:
        """Check all lines, and find where every task's line starts."""
        found = _Found()
        seen: dict[str, int] = {}
        unsaid: list[tuple[int, int]] = []
        names: list[str] = []
        refuse_folder(near(self.file), "name a file of JSON lines")
        try:
            file = self.file.open("rb")
        except OSError as error:
            fix = "check its name, or put it there"
            why = f"{near(self.file)} cannot be read: {error.strerror}"
            if isinstance(error, FileNotFoundError):
                why = f"there is no file {near(self.file)}"
            raise UserError(why, fix) from None
        with file:
            start = 0
            for number, line in enumerate(file, start=1):
                if line.strip():
                    place = f"{self.file.name} line {number}"
                    text, whole = decoded(line)
                    record = _loaded(text, whole, place)
                    task = parse_task(record, place)
                    found.look(record, number, whole)
                    found.texts[number] = text_of(task)
                    if task.id in seen:
                        other = f"{place}: the id {task.id!r} is also in line {seen[task.id]}"
                        raise UserError(other, "give every line an id of its own")
                    seen[task.id] = number
                    split = _split(record, place)
                    if split is None:
                        unsaid.append((number, start))
                        names.append(task.id if "id" in record else str(number))
                    else:
                        found.places[split].append((number, start))
                start += len(line)
        if not seen:
            raise UserError(f"{near(self.file)} holds no tasks", HELP)
        for part, places in deal(names, 1 - self.held_out).items():
            found.places[part] += [unsaid[place] for place in places]
            found.places[part].sort()
        return found

    @property
    def notes(self) -> tuple[str, ...]:
        """What was read, how much of it is held out, and what was passed over."""
        train, test = self.size("train"), self.size("test")
        counts = f"{train:,} for training and {test:,} held out"
        read = f"{near(self.file)}: {train + test:,} tasks read, {counts}"
        return (read, *(f"{near(self.file)}: {what}" for what in self.oddities))

    @property
    def oddities(self) -> tuple[str, ...]:
        """What may be a mistake: keys that are not read, bytes that are no text."""
        found, said = self._found, []
        if found.unread:
            names = [f"{name} (line {at})" for name, at in found.unread.items()]
            more = [f"{len(names) - MOST} more"] if len(names) > MOST else []
            said.append(f"keys not used: {', '.join(names[:MOST] + more)}")
        trained = {found.texts[line] for line, _start in found.places["train"]}
        both = [line for line, _start in found.places["test"] if found.texts[line] in trained]
        if both:
            many = f"{len(both):,} of {self.size('test'):,} held-out tasks"
            said.append(f"{many} are training tasks, too (first: line {both[0]})")
        if again := said_copies(found.texts[line] for line, _start in found.places["test"]):
            said.append(again)
        if found.spoilt:
            many = f"{len(found.spoilt):,} line{'s' * (len(found.spoilt) > 1)}"
            said.append(f"{many} not in UTF-8 and read with gaps (first: line {found.spoilt[0]})")
        return tuple(said)


class _Found:
    """Where the tasks are, and what else was in the file."""

    def __init__(self) -> None:
        self.places: dict[Split, list[tuple[int, int]]] = {"train": [], "test": []}
        """The number of every task's line, and its first byte."""
        self.unread: dict[str, int] = {}
        """Keys that mean nothing here, each with the first line that has it."""
        self.spoilt: list[int] = []
        self.texts: dict[int, int | None] = {}
        """A hash of what is read of every line's task."""

    def look(self, record: Mapping[str, Any], number: int, whole: bool) -> None:
        """Note what a line holds that is not read."""
        if not whole:
            self.spoilt.append(number)
        asked = record.get("questions", ())
        unread = [k for q in asked for k in q if k not in ASKED]
        unread += [k for k in record if k not in LINE and ("questions" in record or k not in ASKED)]
        for key in unread:
            self.unread.setdefault(key, number)


def _loaded(line: str, whole: bool, place: str) -> dict[str, Any]:
    try:
        record = loads(line)
    except ValueError as error:
        if not whole:
            raise UserError(f"{place} is not in UTF-8", "save the file as UTF-8") from None
        raise UserError(f"{place} is not JSON: {error}", "write one object to a line") from None
    if not isinstance(record, dict):
        raise UserError(f"{place} is not an object", HELP)
    return _given(record)


def _given(record: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is null: so tables write what a row does not have."""
    return {key: value for key, value in record.items() if value is not None}


def _split(record: Mapping[str, Any], place: str) -> Split | None:
    split = record.get("split")
    if split not in ("train", "test", None):
        raise UserError(f"{place}: split is {split!r}", "write train or test, or leave it out")
    return split


def parse_task(record: Mapping[str, Any], place: str) -> Task:
    """Make a task of a line's object, or say what is wrong with it and where."""
    chunks = record.get("chunks", [record["text"]] if "text" in record else None)
    if not _is_texts(chunks) or ("chunks" in record and "text" in record):
        raise UserError(f"{place} needs chunks, a list of texts, or one text", HELP)
    if "question" in record and "questions" in record:
        raise UserError(f"{place} has both question and questions", "put all into questions")
    asked = record.get("questions", [record])
    if not isinstance(asked, list) or not asked:
        raise UserError(f"{place}: questions is not a list of objects", HELP)
    questions = tuple(_question(q, len(chunks), place) for q in asked)
    meta = record.get("meta", {})
    if not isinstance(meta, dict):
        raise UserError(f"{place}: meta is not an object", "write an object, or leave it out")
    bytes_per_token(meta, place)
    source = str(record.get("source", Jsonl.name))
    return Task(str(record.get("id", place)), tuple(chunks), questions, source, dict(meta))


def _question(record: Any, chunks: int, place: str) -> Question:
    record = _given(record) if isinstance(record, dict) else {}
    asked = record.get("question")
    if not isinstance(asked, str) or not asked.strip():
        raise UserError(f"{place} has a question without a text", HELP)
    if "answer" in record and "answers" in record:
        raise UserError(f"{place} has both answer and answers", "put all into answers")
    given: Any = record.get("answers", record.get("answer"))
    answers = [given] if isinstance(given, str) else given
    if isinstance(given, bool | int | float):
        raise UserError(
            f"{place}: the answer {json.dumps(given)} is not a text",
            f'put it in quotation marks: "{json.dumps(given)}"',
        )
    if not _is_texts(answers) or not all(answer.strip() for answer in answers):
        raise UserError(
            f"{place}: {asked[:40]!r} has no answers",
            "write answer, a text, or answers, a list of texts of which none is empty",
        )
    evidence = record.get("evidence", [])
    position = record.get("position")
    if not isinstance(evidence, list):
        raise UserError(f"{place}: evidence is {evidence!r}", "write a list of chunk numbers")
    for number in [*evidence, *([] if position is None else [position])]:
        if not isinstance(number, int) or not 0 <= number < chunks:
            raise UserError(
                f"{place}: there is no chunk {number!r}", f"chunks count from 0 to {chunks - 1}"
            )
    category = str(record.get("category", ""))
    return Question(asked, tuple(answers), category, tuple(evidence), position)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, str) for v in value)

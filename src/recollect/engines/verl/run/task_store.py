"""Tasks on disk that any number of processes map: one of millions of tokens costs a row of bytes.

    chunks.arrow   every chunk of every text; equal texts are stored once
    tasks.arrow    of each task: everything but its text as JSON, and which chunks are its text

Knows nothing of verl.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from recollect import files as disk
from recollect.errors import UserError
from recollect.files import plain
from recollect.tasks.files.lazy import Lazy
from recollect.tasks.files.mapped import TEXTS, MappedFile, MappedWriter
from recollect.types import Question, Task

CHUNKS, TASKS = "chunks.arrow", "tasks.arrow"
_SCHEMA = pa.schema({"record": pa.large_binary(), "first": pa.int64(), "last": pa.int64()})
_ERRORS = "surrogatepass"  # half a surrogate pair must come back as it went in


@dataclass(frozen=True, eq=False)
class StoredText(Lazy[str]):
    """The chunks of one task, each decoded when it is asked for."""

    chunks: MappedFile
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    def item(self, place: int) -> str:
        """Decode a chunk."""
        return self.chunks.value(self.first + place).decode("utf-8", _ERRORS)


@dataclass(frozen=True, eq=False)
class TaskStore(Lazy[Task]):
    """A folder of tasks. Nothing is read before it is used; it travels as its folder's name."""

    folder: Path
    chunks: MappedFile = field(init=False, repr=False)
    tasks: MappedFile = field(init=False, repr=False)

    def __post_init__(self) -> None:
        fix = f"delete {self.folder} and start the run again: it is written anew"
        object.__setattr__(self, "chunks", MappedFile(self.folder / CHUNKS, TEXTS, fix))
        object.__setattr__(self, "tasks", MappedFile(self.folder / TASKS, _SCHEMA, fix))

    def __len__(self) -> int:
        return len(self.tasks)

    def item(self, place: int) -> Task:
        """Read a task; its text stays on disk."""
        record = json.loads(self.tasks.value(place).decode("utf-8", _ERRORS))
        questions = tuple(
            Question(**{**q, "answers": tuple(q["answers"]), "evidence": tuple(q["evidence"])})
            for q in record["questions"]
        )
        first, last = (self.tasks.table[name][place].as_py() for name in ("first", "last"))
        text = StoredText(self.chunks, first, last)
        return Task(record["id"], text, questions, record["source"], record["meta"])


def open_store(folder: Path) -> TaskStore:
    """Open a store, refusing a folder that holds no whole one."""
    store = TaskStore(Path(folder))
    try:
        _ = store.tasks.table, store.chunks.table
    except UserError as error:
        what = f"{folder} holds no whole store of tasks: {error.what}"
        raise UserError(what, error.fix) from None
    return store


def write_store(folder: Path, tasks: Iterable[Task], about: str = "") -> TaskStore:
    """Write tasks, one at a time, in place of whatever the folder held.

    `about` says what they are, so that a later run can tell whether it wants the same ones.
    """
    temporary = folder.with_name(disk.TEMPORARY + folder.name)
    with disk.refusals(folder):
        disk.remove(temporary)
        temporary.mkdir(parents=True)
        _write(temporary, tasks, about)
        disk.remove(folder)
        temporary.rename(folder)
        disk.fsync(folder.parent)
    return TaskStore(folder)


def is_stored(folder: Path, about: str) -> bool:
    """Tell whether a folder already holds a whole store of just these tasks."""
    return (folder / TASKS).exists() and open_store(folder).tasks.about == about


def _write(folder: Path, tasks: Iterable[Task], about: str) -> None:
    seen: dict[bytes, tuple[int, int]] = {}
    with (
        MappedWriter(folder / CHUNKS, TEXTS) as chunks,
        MappedWriter(folder / TASKS, _SCHEMA, about) as records,
    ):
        for task in tasks:
            # A task that comes round again brings its text again. A text may be larger than memory,
            # so it is gone through twice: once to know it, and once to write it.
            digest = hashlib.blake2b(digest_size=16)
            for chunk in task.chunks:
                data = chunk.encode("utf-8", _ERRORS)
                digest.update(len(data).to_bytes(8, "little") + data)
            span = seen.get(digest.digest())
            if span is None:
                first = chunks.rows
                for chunk in task.chunks:
                    chunks.add(chunk.encode("utf-8", _ERRORS))
                span = seen[digest.digest()] = first, chunks.rows
            record = json.dumps(_record(task), default=plain, ensure_ascii=False)
            records.add(record.encode("utf-8", _ERRORS), *span)


def _record(task: Task) -> dict[str, Any]:
    questions = [asdict(question) for question in task.questions]
    return {"id": task.id, "source": task.source, "questions": questions, "meta": task.meta}

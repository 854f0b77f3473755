"""Tasks in a Parquet file: written one by one, read one by one, the same bytes every time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from recollect.errors import UserError
from recollect.files import replacing
from recollect.foreign import storable_values
from recollect.types import Question, Task

_QUESTION = pa.struct(
    {
        "text": pa.string(),
        "answers": pa.list_(pa.string()),
        "category": pa.string(),
        "evidence": pa.list_(pa.int64()),
        "position": pa.int64(),
    }
)
_SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "source": pa.string(),
        "chunks": pa.list_(pa.string()),
        "questions": pa.list_(_QUESTION),
        "meta": pa.string(),
    }
)


def write_tasks(path: Path, tasks: Iterable[Task]) -> int:
    """Write tasks, each a row group of its own, and return how many there were."""
    written = 0
    with (
        replacing(path) as temporary,
        pq.ParquetWriter(temporary, _SCHEMA, compression="zstd") as writer,
    ):
        for task in tasks:
            writer.write_table(pa.Table.from_pylist([storable_values(_row(task))], schema=_SCHEMA))
            written += 1
    return written


def _row(task: Task) -> dict[str, object]:
    questions = [
        {
            "text": question.text,
            "answers": list(question.answers),
            "category": question.category,
            "evidence": list(question.evidence),
            "position": question.position,
        }
        for question in task.questions
    ]
    meta = json.dumps(task.meta, ensure_ascii=False, sort_keys=True)
    return {
        "id": task.id,
        "source": task.source,
        "chunks": list(task.chunks),
        "questions": questions,
        "meta": meta,
    }


@dataclass(frozen=True)
class TaskTable:
    """A file of tasks, of which one at a time is in memory."""

    path: Path
    fix: str
    """What to do if it is missing or spoilt."""

    @cached_property
    def ids(self) -> list[str]:
        with self._refusing():
            ids: list[str] = self._open().read(["id"])["id"].to_pylist()
        return ids

    def task(self, place: int) -> Task:
        """Read the task at a place."""
        with self._refusing():
            (row,) = self._open().read_row_group(place).to_pylist()
        questions = tuple(
            Question(
                asked["text"],
                tuple(asked["answers"]),
                asked["category"],
                tuple(asked["evidence"]),
                asked["position"],
            )
            for asked in row["questions"]
        )
        meta = json.loads(row["meta"])
        return Task(row["id"], tuple(row["chunks"]), questions, row["source"], meta)

    def _open(self) -> pq.ParquetFile:
        file = pq.ParquetFile(self.path)
        if file.schema_arrow.remove_metadata() != _SCHEMA:
            raise UserError(f"{self.path} does not have the columns of a file of tasks", self.fix)
        return file

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise UserError(f"there is no file {self.path}", self.fix) from None
        except (OSError, pa.ArrowException) as error:
            raise UserError(f"{self.path} cannot be read: {error}", self.fix) from None

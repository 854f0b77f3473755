"""Tasks on disk that any number of processes map: one of millions of tokens costs a row of bytes.

    text.bin      every chunk in UTF-8, one after the other
    chunks.npy    int64 [chunks + 1]: where each of them ends
    spans.npy     int64 [tasks, 2]: the chunks of every task; equal texts are stored once
    records.bin   everything else about a task, as JSON
    records.npy   int64 [tasks + 1]
    store.json    written last, with the sizes: without it there is no store

No pickles: opening a store runs nothing. Knows nothing of verl.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np

from recollect import files as disk
from recollect.errors import UserError
from recollect.files import plain
from recollect.types import Question, Task

_FORMAT = 1
_HEADER = "store.json"
# Half a surrogate pair, which JSON can carry, must come back as it went in.
_ERRORS = "surrogatepass"


@dataclass(frozen=True, eq=False)
class StoredText(Sequence[str]):
    """The chunks of one task, each decoded when it is asked for."""

    store: TaskStore
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return [self[i] for i in range(len(self))[at]]
        return self.store.chunk(self.first + range(len(self))[at])

    def __iter__(self) -> Iterator[str]:
        return (self.store.chunk(i) for i in range(self.first, self.last))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class TaskStore(Sequence[Task]):
    """A folder of tasks. Nothing is read before it is used; it travels as its folder's name."""

    folder: Path

    def __len__(self) -> int:
        return len(self._spans)

    @overload
    def __getitem__(self, at: int) -> Task: ...
    @overload
    def __getitem__(self, at: slice) -> list[Task]: ...
    def __getitem__(self, at: int | slice) -> Task | list[Task]:
        if isinstance(at, slice):
            return [self[i] for i in range(len(self))[at]]
        i = range(len(self))[at]
        first, last = self._spans[i].tolist()
        start, end = self._record_ends[i : i + 2].tolist()
        record = json.loads(_decode(self._records, start, end))
        questions = tuple(
            Question(**{**q, "answers": tuple(q["answers"]), "evidence": tuple(q["evidence"])})
            for q in record["questions"]
        )
        text = StoredText(self, first, last)
        return Task(record["id"], text, questions, record["source"], record["meta"])

    def chunk(self, number: int) -> str:
        """Return a chunk by its number in the whole store."""
        start, end = self._chunk_ends[number : number + 2].tolist()
        return _decode(self._text, start, end)

    def __reduce__(self) -> tuple[type[TaskStore], tuple[Path]]:
        return TaskStore, (self.folder,)  # a mapped array would travel with all its bytes

    @cached_property
    def header(self) -> dict[str, Any]:
        """What was written when the store was whole."""
        try:
            header: dict[str, Any] = json.loads((self.folder / _HEADER).read_text("utf-8"))
            if header["format"] != _FORMAT:
                raise ValueError(f"it has format {header['format']}, not {_FORMAT}")
            for name, size in header["sizes"].items():
                if (self.folder / name).stat().st_size != size:
                    raise ValueError(f"{name} is not as long as it was written")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{self.folder} holds no whole store of tasks: {error}",
                "delete that folder and start the run again: it is written anew",
            ) from None
        return header

    @cached_property
    def _text(self) -> np.ndarray:
        return self._map("text.bin")

    @cached_property
    def _records(self) -> np.ndarray:
        return self._map("records.bin")

    @cached_property
    def _chunk_ends(self) -> np.ndarray:
        return self._map("chunks.npy")

    @cached_property
    def _record_ends(self) -> np.ndarray:
        return self._map("records.npy")

    @cached_property
    def _spans(self) -> np.ndarray:
        return self._map("spans.npy")

    def _map(self, name: str) -> np.ndarray:
        size = self.header["sizes"][name]
        path = self.folder / name
        if path.suffix == ".npy":
            return np.load(path, mmap_mode="r", allow_pickle=False)
        # An empty file cannot be mapped.
        return np.memmap(path, np.uint8, "r") if size else np.zeros(0, np.uint8)


def open_store(folder: Path) -> TaskStore:
    """Open a store, refusing a folder that holds no whole one."""
    store = TaskStore(Path(folder))
    _ = store.header
    return store


def write_store(folder: Path, tasks: Iterable[Task], about: str = "") -> TaskStore:
    """Write tasks, one at a time, in place of whatever the folder held.

    `about` says what they are, so that a later run can tell whether it wants the same ones.
    """
    temporary = folder.with_name(disk.TEMPORARY + folder.name)
    with disk.refusals(folder):
        disk.remove(temporary)
        temporary.mkdir(parents=True)
        _write(temporary, tasks)
        sizes = {path.name: path.stat().st_size for path in sorted(temporary.iterdir())}
        header = {"format": _FORMAT, "about": about, "sizes": sizes}
        (temporary / _HEADER).write_text(json.dumps(header, indent=2) + "\n", "utf-8")
        for path in temporary.iterdir():
            disk.fsync(path)
        disk.remove(folder)
        temporary.rename(folder)
        disk.fsync(folder.parent)
    return TaskStore(folder)


def is_stored(folder: Path, about: str) -> bool:
    """Tell whether a folder already holds a whole store of just these tasks."""
    return (folder / _HEADER).exists() and open_store(folder).header["about"] == about


def _write(folder: Path, tasks: Iterable[Task]) -> None:
    chunk_ends, record_ends, spans = array("q", [0]), array("q", [0]), array("q")
    seen: dict[bytes, tuple[int, int]] = {}
    with open(folder / "text.bin", "wb") as text, open(folder / "records.bin", "wb") as records:
        for task in tasks:
            # A task that comes round again brings its text again.
            first, start = len(chunk_ends) - 1, chunk_ends[-1]
            digest = hashlib.blake2b(digest_size=16)
            for chunk in task.chunks:
                data = chunk.encode("utf-8", _ERRORS)
                digest.update(len(data).to_bytes(8, "little") + data)
                text.write(data)
                chunk_ends.append(chunk_ends[-1] + len(data))
            span = seen.setdefault(digest.digest(), (first, len(chunk_ends) - 1))
            if span[0] != first:
                del chunk_ends[first + 1 :]
                text.seek(start)
            spans.extend(span)
            record = json.dumps(_record(task), default=plain, ensure_ascii=False)
            record_ends.append(record_ends[-1] + records.write(record.encode("utf-8", _ERRORS)))
        text.truncate(chunk_ends[-1])
    np.save(folder / "chunks.npy", np.frombuffer(chunk_ends, np.int64))
    np.save(folder / "records.npy", np.frombuffer(record_ends, np.int64))
    np.save(folder / "spans.npy", np.array(spans, np.int64).reshape(-1, 2))


def _record(task: Task) -> dict[str, Any]:
    questions = [asdict(question) for question in task.questions]
    return {"id": task.id, "source": task.source, "questions": questions, "meta": task.meta}


def _decode(blob: np.ndarray, start: int, end: int) -> str:
    return blob[start:end].tobytes().decode("utf-8", _ERRORS)

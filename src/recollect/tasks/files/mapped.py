"""Tables in Arrow files that are mapped, not read: a row costs the bytes of that row.

Rows are written a few megabytes at a time, so that neither side holds more. Opening a file runs
nothing, and an open one travels between processes as its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from recollect.errors import UserError
from recollect.files import fsync

TEXTS = pa.schema({"text": pa.large_binary()})
"""One text a row. Bytes, because JSON can carry half a surrogate pair, which is no UTF-8."""
_BATCH = 4 << 20


class MappedWriter:
    """Write rows as they come; `about` says what they are. Closing makes the file whole."""

    def __init__(self, path: Path, schema: pa.Schema, about: str = "") -> None:
        self.path = path
        self.rows = 0
        self._schema = schema.with_metadata({"about": about})
        self._file = path.open("wb")
        self._writer = pa.ipc.new_file(self._file, self._schema)
        self._held: list[tuple[Any, ...]] = []
        self._size = 0

    def add(self, *row: Any) -> None:
        """Add a row, its columns in order."""
        self._held.append(row)
        self._size += 8 * len(row) + sum(len(value) for value in row if isinstance(value, bytes))
        self.rows += 1
        if self._size >= _BATCH:
            self._flush()

    def extend(self, *columns: Any) -> None:
        """Add whole columns at once."""
        pairs = zip(columns, self._schema.types, strict=True)
        arrays = [pa.array(column, kind) for column, kind in pairs]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))

    def close(self) -> None:
        """Write what is held, and wait until all of it has reached the disk."""
        with self._file:
            self._flush()
            self._writer.close()
        fsync(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()

    def _flush(self) -> None:
        if self._held:
            self.extend(*zip(*self._held, strict=True))
        self._held, self._size = [], 0


@dataclass(frozen=True, eq=False)
class MappedFile:
    """The rows of a file that a `MappedWriter` closed."""

    path: Path
    schema: pa.Schema
    fix: str
    """What to do if it is missing, damaged or of another version."""

    def __len__(self) -> int:
        return self.table.num_rows

    def __reduce__(self) -> tuple[type[MappedFile], tuple[Path, pa.Schema, str]]:
        return MappedFile, (self.path, self.schema, self.fix)  # not with what is mapped

    def value(self, row: int) -> bytes:
        """Return the first column of a row."""
        return self._first[row].as_py()

    def numbers(self, column: str) -> np.ndarray:
        """Return a column of numbers; one that was written at once stays mapped."""
        return self.table[column].combine_chunks().to_numpy()

    @property
    def about(self) -> str:
        """What the writer said that the rows are."""
        return self.table.schema.metadata[b"about"].decode()

    @cached_property
    def table(self) -> pa.Table:
        """All rows, of which none is in memory."""
        try:
            table = pa.ipc.open_file(pa.memory_map(str(self.path))).read_all()
            # Only bounds are looked at: a wrong one would read beyond the file.
            table.validate(full=True)
        except FileNotFoundError:
            raise UserError(f"there is no file {self.path}", self.fix) from None
        except (OSError, pa.ArrowInvalid) as error:
            raise UserError(f"{self.path} is not whole: {error}", self.fix) from None
        if not table.schema.equals(self.schema) or b"about" not in (table.schema.metadata or {}):
            raise UserError(f"{self.path} was written by another version", self.fix)
        return table

    @cached_property
    def _first(self) -> pa.ChunkedArray:
        return self.table.column(0)

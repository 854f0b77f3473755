"""Parquet files from anywhere, read with a limit: a few kilobytes can hold terabytes.

A value that is stored once may be repeated in every row, and a row of nothing takes no room. Knows
nothing of what the columns mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from recollect.errors import UserError

RATIO = 100
"""Text shrinks to a fifth, tables to a thirtieth; only what was made to expand exceeds this."""
ALWAYS = 256 << 20
"""Bytes that the rows read at once may take, however small the file is."""
ROWS = 1 << 20
"""Rows that any file may have."""


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a file; pyarrow's own errors say what else is wrong with it."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise UserError(f"{path} is not a file", "name a Parquet file")
    file = pq.ParquetFile(path)
    if file.metadata.num_rows > max(ROWS, RATIO * path.stat().st_size):
        file.close()
        raise _expands(path)
    return file


def read_batches(
    file: pq.ParquetFile, path: Path, groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some row groups, or of all, until they take more room than they may."""
    left = max(ALWAYS, RATIO * path.stat().st_size)
    chosen = range(file.num_row_groups) if groups is None else groups
    parts = [file.metadata.row_group(group) for group in chosen]
    # No value is larger than the column chunk that it is stored in.
    widest = max((p.column(i).total_uncompressed_size for p in parts for i in range(p.num_columns)),
                 default=0)  # fmt: skip
    if widest > left:
        raise _expands(path)
    rows = max(1, min(1024, ALWAYS // max(1, widest)))
    for batch in file.iter_batches(batch_size=rows, row_groups=list(chosen)):
        left -= batch.nbytes
        if left < 0:
            raise _expands(path)
        yield batch


def read_table(path: Path) -> pa.Table:
    """Read a whole file."""
    with open_parquet(path) as file:
        return pa.Table.from_batches(read_batches(file, path), file.schema_arrow)


def _expands(path: Path) -> UserError:
    return UserError(
        f"{path} expands more than {RATIO}-fold, as no text does",
        "check where the file comes from; write a file that is meant so in smaller row groups",
    )

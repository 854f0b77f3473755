"""Tables of rows: Parquet files, folders of them, and Hugging Face data sets, by the name of each.

Rows are read when they are asked for, so a table may be larger than memory. A data set that
`datasets` saved on disk is read as the Arrow files it is; only one from the hub needs `datasets`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recollect.errors import UserError
from recollect.files import loads, read_file
from recollect.memory.parquet import open_parquet, read_batches
from recollect.packaging import install

HELD_OUT = ("test", "validation", "valid", "val", "dev", "eval")
"""Words in a file's or a split's name that say it is held out."""


def split_of(name: str) -> str:
    """Read from a name whether its rows are for training or held out; empty if it does not say."""
    words = name.lower().replace("-", " ").replace("_", " ").replace(".", " ").split()
    if any(word in HELD_OUT for word in words):
        return "test"
    return "train" if any(word.startswith("train") for word in words) else ""


@dataclass
class RowBlocks:
    """Rows of one source in blocks, of which the last one read is kept."""

    blocks: list[tuple[str, Any, int]]
    """What a block's split is, how to read it, and how many rows it has."""
    columns: tuple[str, ...]
    _held: tuple[int, pa.Table] | None = field(default=None, repr=False)

    def rows(self) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
        """Yield every row with its split, its block and its place there."""
        for number, (split, _, count) in enumerate(self.blocks):
            for at in range(count):
                yield split, number, at, self.row(number, at)

    def row(self, block: int, at: int) -> dict[str, Any]:
        """Read one row."""
        if self._held is None or self._held[0] != block:
            self._held = (block, self.blocks[block][1]())
        found: dict[str, Any] = self._held[1].slice(at, 1).to_pylist()[0]
        return found


def open_rows(source: str) -> RowBlocks:
    """Open a Parquet file, a folder, or a data set of the hub."""
    path = Path(source).expanduser()
    if path.is_dir():
        if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
            return _saved(path)
        files = sorted(path.rglob("[!.]*.parquet"))
        if not files:
            raise UserError(
                f"{path} holds neither Parquet files nor a data set that `datasets` saved",
                "name a .parquet file, a folder of them, or a folder of save_to_disk",
            )
        return _parquet(files)
    if path.suffix == ".parquet" or path.is_file():
        return _parquet([path])
    return _hub(source)


def _parquet(files: Sequence[Path]) -> RowBlocks:
    blocks: list[tuple[str, Any, int]] = []
    schema: pa.Schema | None = None
    for path in files:
        try:
            file = open_parquet(path)
        except FileNotFoundError:
            raise UserError(f"there is no file {path}", "check the path") from None
        except (pa.ArrowException, OSError) as error:
            fix = "name a Parquet file that is whole"
            raise UserError(f"{path} is not a Parquet file: {error}", fix) from None
        if schema is not None and set(file.schema_arrow.names) != set(schema.names):
            other = sorted(set(file.schema_arrow.names) ^ set(schema.names))
            raise UserError(
                f"{path} has other columns than {files[0].name}: {', '.join(other)} differ",
                "put files of one schema into a folder, or name one file",
            )
        schema = schema or file.schema_arrow
        for group in range(file.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            read = partial(_group, file, path, group)
            blocks.append((split_of(path.stem), read, count))
    assert schema is not None
    return RowBlocks(blocks, tuple(schema.names))


def _group(file: pq.ParquetFile, path: Path, group: int) -> pa.Table:
    """Read the rows of one group."""
    try:
        return pa.Table.from_batches(read_batches(file, path, [group]), file.schema_arrow)
    except (OSError, pa.ArrowException) as error:
        fix = "name a Parquet file that is whole"
        raise UserError(f"{path} cannot be read: {error}", fix) from None


def _saved(folder: Path) -> RowBlocks:
    """Open what `Dataset.save_to_disk` or `DatasetDict.save_to_disk` wrote."""
    parts = {"": folder}
    try:
        if (folder / "dataset_dict.json").exists():
            named = loads(read_file(folder / "dataset_dict.json"))["splits"]
            parts = {str(name): folder / str(name) for name in named}
        files = [
            (name, part / str(entry["filename"]))
            for name, part in parts.items()
            for entry in loads(read_file(part / "state.json"))["_data_files"]
        ]
        blocks = [block for name, path in files for block in _arrow(split_of(name), path)]
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        fix = "save it again with save_to_disk"
        raise UserError(f"{folder} is not a readable data set: {error}", fix) from None
    columns = blocks[0][1]().column_names if blocks else ()
    return RowBlocks(blocks, tuple(columns))


def _arrow(split: str, path: Path) -> list[tuple[str, Any, int]]:
    """Map an Arrow stream; its batches are the blocks."""
    with pa.memory_map(str(path)) as mapped:
        batches = pa.ipc.open_stream(mapped).read_all().to_batches()
    return [
        (split, lambda batch=batch: pa.Table.from_batches([batch]), batch.num_rows)
        for batch in batches
    ]


def _hub(name: str) -> RowBlocks:
    """Load a data set of the hub, or of its cache on this machine."""
    if name.count("/") > 1 or name.startswith((".", "~", "/")) or not name.strip("/"):
        raise UserError(f"there is no file or folder {name}", "check the path")
    try:
        import datasets
    except ImportError:
        raise UserError(
            f"{name!r} is not a file here, and reading a data set of the hub needs `datasets`",
            f"{install('datasets')}, or name a file or folder",
        ) from None
    try:
        found = datasets.load_dataset(name)
    except Exception as error:  # the hub, its cache and its formats fail in many ways
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"the data set {name!r} cannot be loaded: {type(error).__name__}: {why}",
            "check the name and the network, or save it on disk with save_to_disk and name that",
        ) from None
    parts = dict(found) if hasattr(found, "keys") else {"": found}
    blocks: list[tuple[str, Any, int]] = []
    for split, part in parts.items():
        plain = part.with_format("arrow")
        for start in range(0, len(part), 1000):
            stop = min(start + 1000, len(part))
            read = lambda plain=plain, start=start, stop=stop: plain[start:stop]  # noqa: E731
            blocks.append((split_of(str(split)), read, stop - start))
    columns = next(iter(parts.values())).column_names
    return RowBlocks(blocks, tuple(columns))

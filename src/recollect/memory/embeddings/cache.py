"""Vectors on disk, found again by their exact text, model, number format and cache version.

A folder per model holds Arrow files ("shards"), each written whole and never changed; a killed run
loses the batch it was at and nothing else. Knows nothing of models.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from recollect.errors import UserError
from recollect.files import TEMPORARY, make_folder, replacing

VERSION = 1
"""Raised when a vector would come out differently from the same text and model."""

DType = Literal["float32", "float16"]
_SMALL = 8192  # rows; smaller shards are joined when a run ends


class EmbeddingCache:
    """The vectors of one model in one number format."""

    def __init__(self, folder: Path, model: str, dtype: DType = "float32") -> None:
        self.model = model
        self.dtype: DType = dtype
        self._name = json.dumps({"model": model, "dtype": dtype, "version": VERSION})
        slug = re.sub(r"[^A-Za-z0-9.-]+", "-", model).strip("-.")[-60:]
        mark = hashlib.sha256(self._name.encode()).hexdigest()[:8]
        self.folder = folder / f"{slug}-{dtype}-v{VERSION}-{mark}"
        self._shards: dict[str, np.ndarray] = {}
        self._rows: dict[bytes, tuple[str, int]] = {}
        self._read()

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, text: str) -> bool:
        return self._key(text) in self._rows

    @property
    def width(self) -> int | None:
        """How many numbers a vector has; None if there is no vector yet."""
        return next((vectors.shape[1] for vectors in self._shards.values()), None)

    def get(self, text: str) -> np.ndarray | None:
        """Return a text's vector as float32."""
        at = self._rows.get(self._key(text))
        return None if at is None else self._shards[at[0]][at[1]].astype(np.float32)

    def missing(self, texts: Sequence[str]) -> list[str]:
        """Return the texts that have no vector, each once, in order."""
        return [text for text in dict.fromkeys(texts) if text not in self]

    def matrix(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of texts, float32 [n, d]; every text must have one."""
        found = [self.get(text) for text in texts]
        rows = [row for row in found if row is not None]
        if len(rows) < len(found):
            raise UserError(
                f"{len(found) - len(rows)} of {len(found)} texts have no vector of"
                f" {self.model} ({self.dtype}) in {self.folder.parent}",
                "compute them with `recollect data embed`",
            )
        return np.array(rows, np.float32)

    def add(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        """Write the vectors of texts as one shard, safely on disk when this returns."""
        self._write([self._key(text) for text in texts], vectors.astype(self.dtype))

    def tidy(self) -> None:
        """Join small shards into one, and clear what a kill left; for one process at a time."""
        for path in self.folder.glob(f"{TEMPORARY}*"):
            path.unlink(missing_ok=True)
        small = [name for name, rows in self._shards.items() if len(rows) < _SMALL]
        if len(small) < 2:
            return
        keys = [key for key, (name, _) in self._rows.items() if name in small]
        rows = [self._shards[name][row] for name, row in (self._rows[key] for key in keys)]
        joined = self._write(keys, np.array(rows))
        for name in small:
            if name != joined:
                (self.folder / name).unlink(missing_ok=True)
                del self._shards[name]

    def _key(self, text: str) -> bytes:
        return hashlib.sha256(f"{self._name}\0{text}".encode("utf-8", "surrogatepass")).digest()

    def _write(self, keys: list[bytes], vectors: np.ndarray) -> str:
        make_folder(self.folder)
        # Named by content: two processes that write the same batch write the same file.
        name = f"{hashlib.sha256(b''.join(keys)).hexdigest()[:20]}.arrow"
        flat = pa.array(vectors.ravel())
        columns = {
            "key": pa.array(keys, pa.binary(32)),
            "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        }
        table = pa.table(columns).replace_schema_metadata({"recollect": self._name})
        with replacing(self.folder / name) as path:
            _write_arrow(table, path)
        self._take(name, keys, vectors)
        return name

    def _read(self) -> None:
        paths = sorted(self.folder.glob("[!.]*.arrow"))  # not what is being written
        try:
            for path in paths:
                self._open(path)
        except FileNotFoundError:
            self._read()  # another process has just joined shards

    def _open(self, path: Path) -> None:
        try:
            with pa.memory_map(str(path)) as source:
                table = pa.ipc.open_file(source).read_all().combine_chunks()
            told = (table.schema.metadata or {}).get(b"recollect", b"").decode()
            if told != self._name:
                raise ValueError(f"it belongs to {told or 'something else'}")
            column = table.column("vector").chunk(0)
            width = column.type.list_size
            vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
        except FileNotFoundError:
            raise
        except (OSError, ValueError, KeyError, IndexError, pa.ArrowInvalid) as error:
            fix = "delete the file; its vectors are computed again"
            raise UserError(f"{path} is not a shard of vectors: {error}", fix) from None
        self._take(path.name, table.column("key").to_pylist(), vectors)

    def _take(self, name: str, keys: list[bytes], vectors: np.ndarray) -> None:
        self._shards[name] = vectors
        self._rows.update((key, (name, row)) for row, key in enumerate(keys))


def _write_arrow(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)

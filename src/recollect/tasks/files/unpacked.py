"""Compressed files, read with a limit: what expands far more than text does is refused.

Knows nothing of what the files say.
"""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path
from typing import IO, Any

from recollect.errors import UserError

RATIO = 100
"""Text shrinks to a fifth, tables to a thirtieth; only what was made to expand goes beyond this."""
ALWAYS = 64 << 20
"""Bytes that any file may expand to, however small it is."""


class Limited(io.RawIOBase):
    """A stream that ends with a message once it has given more than it may."""

    def __init__(self, source: gzip.GzipFile, path: Path) -> None:
        self._source = source
        self._path = path
        self._left = max(ALWAYS, RATIO * os.stat(path).st_size)

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer."""
        data = self._source.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise UserError(
                f"{self._path} expands more than {RATIO}-fold, far more than text does",
                "check where the file comes from; if it is right, unpack it first",
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the source as well."""
        self._source.close()
        super().close()


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file, gzipped or not, as its first bytes say."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a file", "name a file")
    file = path.open("rb")
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    if not packed:
        return file
    return io.BufferedReader(Limited(gzip.GzipFile(fileobj=file), path), 1 << 20)


def read_bytes(path: Path) -> bytes:
    """Read a file whole, gzipped or not."""
    with open_bytes(path) as file:
        return file.read()

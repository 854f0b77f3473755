"""A file of JSON lines that only grows. What `append` returned from survives a kill of the process.

Knows nothing of what the lines say.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recollect.errors import UserError
from recollect.files import refusals
from recollect.runs.episodes import plain

_encode = json.JSONEncoder(separators=(",", ":"), default=plain).encode
_BLOCK = 1 << 16


class Lines:
    """One record per line, each in the kernel's hands before the next step is taken."""

    def __init__(self, path: Path) -> None:
        """Open or create; a last line that a kill cut short is taken away."""
        self.path = path
        with refusals(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            os.ftruncate(self._file, _whole(self._file))

    def append(self, record: Any) -> None:
        """Write one record."""
        data = memoryview(_encode(record).encode() + b"\n")
        with refusals(self.path):
            while data:
                data = data[os.write(self._file, data) :]

    def close(self) -> None:
        """Let the disk have it all."""
        os.fsync(self._file)
        os.close(self._file)


def _whole(file: int) -> int:
    """Return where the last whole line ends."""
    end = os.fstat(file).st_size
    while end:
        start = max(0, end - _BLOCK)
        at = os.pread(file, end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


def read_lines(path: Path) -> Iterator[Any]:
    """Yield the records of a file; one that is not there has none, and a torn last line is none."""
    if not path.exists():
        return
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield json.loads(line)
            except ValueError as error:
                raise UserError(
                    f"{path}, line {number} is damaged: {error}",
                    "delete that line: what it held is measured again",
                ) from error

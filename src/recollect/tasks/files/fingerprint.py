"""What the data of a task family are known by: the content of their files, and nothing else.

Two files of one name, or one file that was changed under its name, size and time, differ here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from recollect.errors import UserError
from recollect.tasks.files.manifest import sha256


@runtime_checkable
class ReadsFiles(Protocol):
    """A family that says which files its tasks are made from."""

    def data_files(self) -> Iterable[Path]:
        """Return files, and folders of which every file counts."""


def fingerprint(family: object) -> str:
    """Return a hash of all that a family reads; empty where it reads nothing.

    A family without `data_files` is known by every file that one of its settings names.
    """
    named: list[Path] = []
    if isinstance(family, ReadsFiles):
        named = list(family.data_files())
    elif is_dataclass(family):
        values = [getattr(family, f.name) for f in fields(family)]
        named = [value for value in values if isinstance(value, Path) and value.exists()]
    held = [(str(path.relative_to(root)), _content(path)) for root in named for path in _all(root)]
    return hashlib.sha256(json.dumps(held).encode()).hexdigest()[:16] if held else ""


def _all(root: Path) -> Iterator[Path]:
    if not root.is_dir():
        return iter([root] if root.is_file() else [])
    found = (path for path in root.rglob("*") if path.is_file())
    return iter(sorted(p for p in found if not any(s[0] == "." for s in p.relative_to(root).parts)))


def _content(path: Path) -> str:
    try:
        return sha256(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", "check the file") from None

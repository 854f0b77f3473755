"""States of a memory on disk: one file each, named after all that was read to get there.

Every file is whole or not there, so a kill loses at most the window that was being read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from recollect.errors import UserError
from recollect.files import make_folder, plain, read_json, remove, write_text

FORMAT = 1
_FIX = "delete the file: what it holds is read again"


class Shelf:
    """A folder of states, or none: then they are kept for as long as the process lives."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._held: dict[str, dict[str, Any]] = {}
        self._saved: dict[str, None] = {}
        """What this process saved, in order: a file's time is that of a clock that may be set."""
        self._writing = threading.Lock()
        if folder is not None:
            make_folder(folder, private=True)

    def __contains__(self, key: str) -> bool:
        return key in self._held if self.folder is None else self._path(key).is_file()

    def load(self, key: str) -> dict[str, Any]:
        """Return a state."""
        if self.folder is None:
            return self._held[key]
        path = self._path(key)
        record = read_json(path, _FIX)
        if record.get("format") != FORMAT or record.get("key") != key:
            raise UserError(f"{path} is not the state that its name says", _FIX)
        return record

    def damaged(self, key: str, why: str) -> UserError:
        """Return the message about a state that cannot be used."""
        where = self._path(key) if self.folder else f"the state {key}"
        return UserError(f"{where} is damaged: {why}", _FIX)

    def save(self, key: str, record: dict[str, Any]) -> None:
        """Store a state."""
        whole = {"format": FORMAT, "key": key, **record}
        if self.folder is None:
            self._held[key] = whole
        else:
            data = json.dumps(whole, default=plain)
            with self._writing:  # two readers of one text may get here at once
                write_text(self._path(key), data)
                self._saved.pop(key, None)
                self._saved[key] = None

    def keys(self) -> Iterator[str]:
        """Yield the names of all states."""
        if self.folder is None:
            yield from list(self._held)
        else:
            yield from [path.stem for path in self.folder.glob("[!.]*.json")]

    def keep_only(self, keys: Collection[str]) -> int:
        """Delete every other state; return how many there were."""
        gone = [key for key in self.keys() if key not in keys]
        for key in gone:
            if self.folder is None:
                del self._held[key]
            else:
                remove(self._path(key))
                self._saved.pop(key, None)
        return len(gone)

    def keep_newest(self, most: int) -> int:
        """Delete the states written longest ago if there are more; return how many."""
        if self.folder is None:
            old = list(self._held)[: max(0, len(self._held) - most)]
        else:
            paths = list(self.folder.glob("[!.]*.json"))
            if len(paths) <= most:
                return 0
            saved = {key: number for number, key in enumerate(self._saved)}
            paths.sort(key=lambda path: (saved.get(path.stem, -1), path.stat().st_mtime_ns))
            old = [path.stem for path in paths[: len(paths) - most]]
        return self.keep_only(set(self.keys()).difference(old)) if old else 0

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{key}.json"

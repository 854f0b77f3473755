"""Files that are whole or not there: atomic replacement, flushing, locks, and lines that are kept.

Knows nothing of what the files say.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from recollect.errors import UserError

TEMPORARY = ".tmp-"
"""Starts the name of what is being written or removed; `Run.open` clears what a kill left."""

_FIXES = {
    errno.EACCES: "choose a run folder you may write to",
    errno.EPERM: "choose a run folder you may write to",
    errno.EROFS: "choose a run folder on a disk that can be written",
    errno.ENOTDIR: "choose a run folder whose parents are folders",
    errno.ENAMETOOLONG: "choose a shorter run folder name",
    errno.ENOSPC: "free some space, then resume",
    errno.EDQUOT: "free some space, then resume",
    errno.EFBIG: "choose a run folder on another disk",
    errno.EIO: "check the disk, then resume",
}


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Turn what a file system refuses into a message; any other error is a bug and crashes."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FIXES:
            raise
        name = error.filename or path
        raise UserError(f"cannot write {name}: {error.strerror}", _FIXES[error.errno]) from error


def make_folder(path: Path) -> None:
    """Create a folder and its parents; whatever stands in the way is the user's to mend."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fix = _FIXES.get(error.errno or 0, _FIXES[errno.EACCES])
        raise UserError(f"cannot create {path}: {error.strerror}", fix) from error


def refuse_pickles(folder: Path) -> None:
    """Refuse a model folder whose weights are pickles alone: reading one runs what it says."""
    pickles = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth"))
    if pickles and not any(folder.glob("*.safetensors")):
        raise UserError(
            f"the weights in {folder} are pickled ({pickles[0]}), and reading a pickle runs code",
            "choose a folder with *.safetensors, which most models are published with as well",
        )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name that becomes `path`, in one move, once it is safely on disk."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    try:
        yield temporary
        fsync(temporary)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):  # what went wrong first is what is told
            remove(temporary)
        raise
    fsync(path.parent)


def fsync(path: Path) -> None:
    """Wait until a file, or the names in a folder, have reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Delete a file or a folder; a kill half-way leaves no half folder under its name."""
    if path.is_dir() and not path.name.startswith(TEMPORARY):
        hidden = path.with_name(f"{TEMPORARY}removed-{path.name}")
        remove(hidden)
        path = path.rename(hidden)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def lock(folder: Path) -> IO[bytes]:
    """Hold a folder for this process; the system lets go when the process ends, however it does."""
    file = open(folder / ".lock", "ab")  # noqa: SIM115 - the open file is the lock
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise UserError(
            f"{folder} is in use by another process",
            "wait for it to end, or choose another run folder",
        ) from None
    except OSError as error:
        file.close()
        raise UserError(
            f"{folder} cannot be locked ({error})", "put the run folder on a local disk"
        ) from error
    return file


def plain(value: Any) -> Any:
    """Give JSON what it does not know: paths, sets, numpy's scalars and arrays."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON: {value!r}")


_encode = json.JSONEncoder(separators=(",", ":"), default=plain).encode


class Lines:
    """A file of JSON lines that only grows; what `append` returned from survives a kill."""

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
        start = max(0, end - (1 << 16))
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

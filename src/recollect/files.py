"""Files that are whole or not there: atomic replacement, lines that only grow, locks, plain errors.

Whatever a file system refuses, and whatever is wrong with a file that is read, is a `UserError`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from recollect.errors import UserError
from recollect.foreign import redact, storable

TEMPORARY = ".tmp-"
"""Starts the name of what is being written or removed; `Run.open` clears what a kill left."""

_ROOM = "free some space, then run the same command again: it resumes"
_WRITABLE = "choose a folder you may write to"
_IN_THE_WAY = "move it away, or choose another folder"
_FIXES = {
    errno.EACCES: _WRITABLE,
    errno.EPERM: _WRITABLE,
    errno.EROFS: "choose a folder on a disk that can be written",
    errno.ENOTDIR: "choose a folder whose parents are folders",
    errno.EEXIST: _IN_THE_WAY,
    errno.EISDIR: _IN_THE_WAY,
    errno.ENOTEMPTY: _IN_THE_WAY,
    errno.ELOOP: _IN_THE_WAY,
    errno.ENAMETOOLONG: "choose a shorter folder name",
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: "choose a folder on another disk: this one allows no file of that size",
    errno.EIO: "check the disk, then run the same command again: it resumes",
    errno.EMFILE: "allow more open files (ulimit -n), then run the same command again",
    errno.ENFILE: "close other programs, then run the same command again",
}
TEMPORARY_FILES = "set TMPDIR to a folder that you may write to and that has room"
_NO_TEMPORARY = "No usable temporary directory"
"""What Python says when there is no place for temporary files; torch asks for it."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
"""What is never our mistake, wherever it happens."""
_BLOCK = 1 << 16


# What a file system refuses


def refusal(error: Exception, path: Path) -> UserError | None:
    """Return a message if a file system refused to write; None if the error is something else."""
    if isinstance(error, UserError):
        return None
    if isinstance(error, FileNotFoundError) and _NO_TEMPORARY in str(error):
        return UserError("there is no folder for temporary files", TEMPORARY_FILES)
    if isinstance(error, FileNotFoundError) and not path.parent.exists():
        what = f"the folder {path.parent} is not there: it was never made, or was removed meanwhile"
        return UserError(what, "make it, or choose another")
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        # Libraries in other languages, and numpy, report the system's error in their text alone.
        told = re.search(r"(?:os error|[Ee]rrno) (\d+)|\d+ requested and \d+ written", str(error))
        number = None if told is None else int(told[1] or errno.ENOSPC)
    if number not in _FIXES:
        return None
    name = (error.filename if isinstance(error, OSError) else None) or path
    return UserError(f"cannot write {name}: {os.strerror(number)}", _FIXES[number])


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Turn what a file system refuses into a message; any other error is a bug and crashes."""
    try:
        yield
    except Exception as error:
        refused = refusal(error, path)
        if refused is None:
            raise
        raise refused from error


@contextmanager
def temporary_files() -> Iterator[None]:
    """Turn a full or missing folder for temporary files into a message."""
    try:
        yield
    except OSError as error:
        what = f"no temporary file can be written: {error.strerror}"
        raise UserError(what, TEMPORARY_FILES) from error


def make_folder(path: Path, private: bool = False) -> None:
    """Create a folder and its parents; a private one can be opened by its owner alone."""
    try:
        path.mkdir(0o700 if private else 0o777, parents=True, exist_ok=True)
    except OSError as error:
        fix = _FIXES.get(error.errno or 0, _WRITABLE)
        raise UserError(f"cannot create {path}: {error.strerror}", fix) from error


def lock(folder: Path) -> IO[bytes]:
    """Hold a folder for this process; the system releases it when the process ends."""
    with refusals(folder):
        file = os.fdopen(_open_file(folder / ".lock"), "ab")  # the open file is the lock
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


def is_locked(folder: Path) -> bool:
    """Tell whether a process holds a folder; nothing is written into it."""
    try:
        # Not as Python opens a file: a pipe in its place would be waited for.
        with os.fdopen(os.open(folder / ".lock", os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # never locked, or not to be read
        return False
    return False


def refuse_pickles(folder: Path) -> None:
    """Refuse a model folder whose weights are pickles alone: reading one runs what it says."""
    pickles = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth"))
    if pickles and not any(folder.glob("*.safetensors")):
        raise UserError(
            f"the weights in {folder} are pickled ({pickles[0]}), and reading a pickle runs code",
            "choose a folder with *.safetensors, which most models are published with as well",
        )


# Whole files


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name that becomes `path`, in one move, once it is safely on disk."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    with refusals(path):
        try:
            yield temporary
            fsync(temporary)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):  # the first error is the one to report
                remove(temporary)
            raise
        fsync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(storable(redact(text)), encoding="utf-8")


def fsync(path: Path) -> None:
    """Wait until a file, or the names in a folder, have reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Delete a file or a folder; a kill half-way leaves no half folder under its name."""
    if path.is_dir() and not path.is_symlink() and not path.name.startswith(TEMPORARY):
        hidden = path.with_name(f"{TEMPORARY}removed-{path.name}")
        remove(hidden)
        path = path.rename(hidden)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# JSON


def plain(value: Any) -> Any:
    """Give JSON what it does not know: paths, sets, numpy's scalars and arrays."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON: {value!r}")


def dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested settings under their dotted names; empty ones are values too."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def loads(data: str | bytes) -> Any:
    """Parse JSON from anywhere; whatever is wrong with it is a ValueError."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def loads_toml(text: str) -> dict[str, Any]:
    """Parse TOML from anywhere; whatever is wrong with it is a ValueError."""
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path, fix: str) -> dict[str, Any]:
    """Read a file that holds one JSON object, or say what is wrong with it."""
    try:
        found = loads(read_file(path))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UserError(f"{path} cannot be read: {why}", fix) from error
    if not isinstance(found, dict):
        raise UserError(f"{path} cannot be read: it holds no JSON object", fix)
    return found


def read_file(path: Path) -> bytes:
    """Read a whole file; a pipe in its place would be waited for, a device has no end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    return path.read_bytes()


line_of = json.JSONEncoder(separators=(",", ":"), default=plain).encode
"""Write a record as one line of JSON, in ASCII."""


class Lines:
    """A file of lines that only grows. What `append` returned from survives a kill of the process.

    A line that cannot be written whole is taken back, so that the next one starts a line.
    """

    def __init__(self, path: Path) -> None:
        """Open or create; a last line that a kill cut short is taken away."""
        self.path = path
        with refusals(path):
            self._file = _open_file(path)
            self._size = _whole(self._file)
            self.torn = os.fstat(self._file).st_size > self._size
            """Whether there was such a line."""
            os.ftruncate(self._file, self._size)

    def append(self, record: Any) -> None:
        """Write a record as one line of JSON."""
        self.write(line_of(record))

    def write(self, line: str) -> None:
        """Write one line."""
        if not os.fstat(self._file).st_nlink:
            self._check_there()
        data = memoryview(redact(line).encode() + b"\n")
        size = self._size + len(data)
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except BaseException:
            with refusals(self.path):
                os.ftruncate(self._file, self._size)
                raise
        self._size = size

    def _check_there(self) -> None:
        """Refuse to write into a file without a name: that would be lost without a word."""
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._file), self.path.stat()):
                return  # a file system that counts no names
        raise UserError(
            f"{self.path} is gone: it was removed or replaced while it was written",
            "leave it where it is until the end, then run the same command again",
        )

    def sync(self) -> None:
        """Wait until all lines have reached the disk."""
        with refusals(self.path):
            os.fsync(self._file)

    def close(self) -> None:
        """Wait until all lines have reached the disk, and close the file."""
        try:
            self.sync()
        finally:
            os.close(self._file)


def _open_file(path: Path) -> int:
    """Open a file to append to; a pipe in its place would be waited for, a device takes all."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o644)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise UserError(f"{path} is not a file", _IN_THE_WAY)
    return file


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


def read_lines(path: Path, fix: str = "restore it from a copy") -> Iterator[tuple[int, Any]]:
    """Yield (line number, record); a missing file yields nothing.

    A line that is damaged, or a last one that was cut short, is an error: none is left out.
    """
    if not path.exists():
        return
    number = 0
    try:
        if not path.is_file():
            raise OSError(errno.EINVAL, "it is not a file", str(path))
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    raise ValueError("it was cut short")
                yield number, loads(line)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", fix) from error
    except ValueError as error:
        raise UserError(f"{path}, line {number} is damaged: {error}", fix) from error

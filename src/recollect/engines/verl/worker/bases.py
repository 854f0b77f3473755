"""Bases of memories, once per node: each a file in shared memory that every worker there maps.

    /dev/shm/recollect-UID-KEY/    the bases of one data set
        lock                       held, shared, by every process that uses them
        NAME.base                  one base: sizes as JSON, then its arrays

The first worker that needs a base writes it. A folder whose lock nobody holds is left over from
processes that are gone, however they went, and the next one that starts removes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from recollect import files as disk
from recollect.errors import UserError
from recollect.foreign import storable
from recollect.memory.corpus import Corpus

SHARED_MEMORY = Path("/dev/shm")
PREFIX = "recollect"
_ALIGN = 64
_OPEN = 256
"""Bases that stay mapped while no trial uses them: each is an open file."""


class LazyBases(Mapping[str, Corpus]):
    """The bases of a data set by name, each made when it is first needed."""

    def __init__(
        self,
        make: Callable[[], Mapping[str, Corpus]],
        key: str,
        root: Path = SHARED_MEMORY,
    ) -> None:
        self._make = make
        self._open: OrderedDict[str, Corpus] = OrderedDict()
        sweep(root)
        self.folder = root / f"{PREFIX}-{os.getuid()}-{_digest(key)}"
        self._lock = hold(self.folder)

    def __getitem__(self, name: str) -> Corpus:
        corpus = self._open.get(name)
        if corpus is None:
            path = self.folder / f"{_digest(name)}.base"
            if not path.exists():
                self._write(name, path)
            corpus = self._open[name] = open_base(path)
        self._open.move_to_end(name)
        while len(self._open) > _OPEN:
            self._open.popitem(last=False)
        return corpus

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self[name] is not None
        except KeyError:
            return False

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """Let go; the last one to do so takes the folder along."""
        self._lock.close()
        self._open.clear()
        sweep(self.folder.parent)

    def _write(self, name: str, path: Path) -> None:
        with _alone(self.folder):
            if path.exists():  # somebody else was first
                return
            made = self._make()  # let go of at once: from here on the files are the bases
            write_base(path, made[name])
            for other in set(made) - {name}:
                write_base(self.folder / f"{_digest(other)}.base", made[other])


def _digest(name: str) -> str:
    return hashlib.blake2b(storable(name).encode(), digest_size=8).hexdigest()


def write_base(path: Path, corpus: Corpus) -> None:
    """Write a base, whole or not at all."""
    arrays = {name: np.ascontiguousarray(array) for name, array in corpus.arrays().items()}
    places: dict[str, tuple[str, list[int], int]] = {}
    at = 0
    for name, array in arrays.items():
        places[name] = (array.dtype.str, list(array.shape), at)
        at += -(-array.nbytes // _ALIGN) * _ALIGN
    about = {"name": corpus.name, "fingerprint": corpus.fingerprint, "arrays": places}
    head = json.dumps(about).encode()
    head += b" " * (-(8 + len(head)) % _ALIGN)
    temporary = path.with_name(f"{disk.TEMPORARY}{os.getpid()}-{path.name}")
    try:
        with open(temporary, "wb") as file:
            file.write(len(head).to_bytes(8, "little") + head)
            for array in arrays.values():
                file.write(array.tobytes())
                file.write(b"\0" * (-array.nbytes % _ALIGN))
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(
            f"the memories of {corpus.name} cannot be put into {path.parent}: {error.strerror}",
            "give the node more shared memory (for a container --shm-size, or an emptyDir volume"
            " with medium Memory at /dev/shm)",
        ) from None
    temporary.rename(path)


def open_base(path: Path) -> Corpus:
    """Map a base that `write_base` wrote: one open file, nothing read before it is used."""
    mapped = np.memmap(path, np.uint8, "r")
    size = int.from_bytes(mapped[:8].tobytes(), "little")
    about = json.loads(mapped[8 : 8 + size].tobytes())
    start = 8 + size
    arrays = {}
    for name, (kind, shape, at) in about["arrays"].items():
        count = int(np.prod(shape)) * np.dtype(kind).itemsize
        arrays[name] = mapped[start + at : start + at + count].view(kind).reshape(shape)
    return Corpus.of(about, arrays)


def hold(folder: Path) -> IO[bytes]:
    """Make a folder, unless it is there, and hold it until this process ends."""
    while True:
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            pass
        except OSError as error:
            raise UserError(
                f"{folder} cannot be made: {error.strerror}", "give the node a /dev/shm"
            ) from None
        about = folder.lstat()
        if about.st_uid != os.getuid() or not stat.S_ISDIR(about.st_mode):
            raise UserError(f"{folder} belongs to somebody else", f"remove {folder}")
        try:
            file = open(folder / "lock", "ab")  # noqa: SIM115 - the open file is the lock
            fcntl.flock(file, fcntl.LOCK_SH)
            if os.fstat(file.fileno()).st_ino == (folder / "lock").stat().st_ino:
                return file
        except FileNotFoundError:
            pass  # a sweep took the folder away before we held it: make it anew


def sweep(root: Path) -> list[Path]:
    """Remove our folders that no process holds any more."""
    swept = []
    for folder in root.glob(f"{PREFIX}-{os.getuid()}-*"):
        try:
            with open(folder / "lock", "ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Another one's sweep may have been faster, and the folder may be a new one by now.
                if os.fstat(file.fileno()).st_ino == (folder / "lock").stat().st_ino:
                    disk.remove(folder)
                    swept.append(folder)
        except (BlockingIOError, FileNotFoundError):
            continue  # in use, or gone
    return swept


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time write."""
    with open(folder / "writing", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

"""Passages: very many short texts in one file that is mapped, not read.

The file is a magic word, the texts one after another in UTF-8, then a table: where each text ends,
the number of its title and the splits it belongs to, and the table's size. A passage is its title,
a newline and its text. Knows nothing of questions.
"""

from __future__ import annotations

import mmap
from array import array
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import IO, ClassVar

import numpy as np

from recollect.errors import UserError
from recollect.tasks.base import Split

_MAGIC = b"recollect passages 1\n"
SPLITS: dict[Split, int] = {"train": 1, "test": 2}
"""The bit that says that a passage belongs to a split."""


class PassageWriter:
    """Write passages as they come, each only once; close to write the table."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._file.write(_MAGIC)
        self._known: dict[bytes, int] = {}
        self._titles: dict[bytes, int] = {}
        self._ends = array("Q", [0])
        self._title_of = array("I")
        self._splits = array("B")

    def __len__(self) -> int:
        return len(self._title_of)

    def add(self, title: str, text: str, splits: int) -> int:
        """Return a passage's number; one that was there before also joins these splits."""
        return self.add_whole(f"{' '.join(title.split())}\n{text.strip()}", splits)

    def add_whole(self, text: str, splits: int) -> int:
        """Add a passage as it is; its first line is its title."""
        # Half a surrogate pair is no text: no file and no tokenizer would take it.
        passage = text.encode("utf-8", "replace")
        key = blake2b(passage, digest_size=16).digest()
        number = self._known.setdefault(key, len(self))
        if number == len(self):
            self._file.write(passage)
            self._ends.append(self._ends[-1] + len(passage))
            name = blake2b(passage.partition(b"\n")[0], digest_size=16).digest()
            self._title_of.append(self._titles.setdefault(name, len(self._titles)))
            self._splits.append(0)
        self._splits[number] |= splits
        return number

    def close(self) -> None:
        """Write the table behind the texts."""
        self._file.write(bytes(-(len(_MAGIC) + self._ends[-1]) % 8))  # numbers start at 8 bytes
        for column in (self._ends, self._title_of, self._splits):
            self._file.write(column.tobytes())
        self._file.write(len(self).to_bytes(8, "little"))


@dataclass(frozen=True)
class Pool:
    """Passages to draw from, and where those of a title stand."""

    numbers: np.ndarray
    """int32: the passages."""
    by_title: np.ndarray
    """int32: places in `numbers`, in the order of the passages' titles."""
    titles: np.ndarray
    """uint32: these titles."""

    def bearing(self, titles: np.ndarray) -> set[int]:
        """Return the places of the passages that bear one of these titles."""
        starts = np.searchsorted(self.titles, titles, "left")
        ends = np.searchsorted(self.titles, titles, "right")
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        return {at for start, end in spans for at in self.by_title[start:end].tolist()}


@dataclass(frozen=True)
class PassageFile:
    """The passages of a file, by number. Holds the table's address, not the texts."""

    path: Path
    one_per_title: bool = True
    """Whether a pool has only the first passage of every title."""
    HEADER: ClassVar[int] = len(_MAGIC)

    def __len__(self) -> int:
        return len(self.titles)

    def __getitem__(self, number: int) -> str:
        start, end = self._ends[number], self._ends[number + 1]
        return str(self._map[self.HEADER + start : self.HEADER + end], "utf-8")

    @property
    def mean_bytes(self) -> float:
        """The mean size of a passage, with its number before it."""
        return self._ends[-1] / max(1, len(self)) + len("Document 100:\n\n\n")

    @property
    def titles(self) -> np.ndarray:
        """The number of each passage's title: equal numbers, equal titles."""
        return self._table[1]

    def pool(self, split: Split) -> Pool:
        """Return the passages that may be distractors in a split, in their order."""
        found = np.flatnonzero(self._table[2] & SPLITS[split])
        if self.one_per_title:
            found = found[np.sort(np.unique(self.titles[found], return_index=True)[1])]
        by_title = np.argsort(self.titles[found], kind="stable").astype(np.int32)
        return Pool(found.astype(np.int32), by_title, self.titles[found[by_title]])

    @cached_property
    def _map(self) -> mmap.mmap:
        fix = "make it with `recollect data`"
        try:
            with self.path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise UserError(f"there is no file {self.path}", fix) from None
        except (OSError, ValueError) as error:
            raise UserError(f"{self.path} cannot be read: {error}", fix) from None
        if mapped[: self.HEADER] != _MAGIC:
            raise UserError(f"{self.path} is not a file of passages", fix)
        return mapped

    @cached_property
    def _ends(self) -> memoryview:
        # A memoryview gives plain integers, several times faster than numpy gives its own.
        return memoryview(self._table[0].data)

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        count = int.from_bytes(self._map[-8:], "little")
        start = len(self._map) - 8 - 8 * (count + 1) - 4 * count - count
        if start < self.HEADER:
            raise UserError(f"{self.path} is cut short", "make it again with `recollect data`")
        ends = np.frombuffer(self._map, "<u8", count + 1, start)
        titles = np.frombuffer(self._map, "<u4", count, start + ends.nbytes)
        splits = np.frombuffer(self._map, "u1", count, start + ends.nbytes + titles.nbytes)
        return ends, titles, splits

"""Passages: very many short texts in one file that is mapped, not read.

    passages.arrow   the passages, each once: its title, a newline and its text
    titles.arrow     of each passage the number of its title, and the splits it belongs to

Knows nothing of questions.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

from recollect.foreign import storable
from recollect.tasks.base import Split
from recollect.tasks.files.mapped import TEXTS, MappedFile, MappedWriter

FILES = ("passages.arrow", "titles.arrow")
SPLITS: dict[Split, int] = {"train": 1, "test": 2}
"""The bit that says that a passage belongs to a split."""
_TITLES = pa.schema({"title": pa.uint32(), "splits": pa.uint8()})


class PassageWriter:
    """Write passages into a folder as they come, each only once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._texts = MappedWriter(folder / FILES[0], TEXTS)
        self._known: dict[bytes, int] = {}
        self._titles: dict[bytes, int] = {}
        self._title_of = array("I")
        self._splits = array("B")

    def __len__(self) -> int:
        return len(self._title_of)

    @property
    def shared(self) -> int:
        """Count the passages that belong to both splits."""
        return self._splits.count(SPLITS["train"] | SPLITS["test"])

    def add(self, title: str, text: str, splits: int) -> int:
        """Return a passage's number; one that was there before also joins these splits."""
        return self.add_whole(f"{' '.join(title.split())}\n{text.strip()}", splits)

    def add_whole(self, text: str, splits: int) -> int:
        """Add a passage as it is; its first line is its title."""
        passage = storable(text).encode()
        key = blake2b(passage, digest_size=16).digest()
        number = self._known.setdefault(key, len(self))
        if number == len(self):
            self._texts.add(passage)
            name = blake2b(passage.partition(b"\n")[0], digest_size=16).digest()
            self._title_of.append(self._titles.setdefault(name, len(self._titles)))
            self._splits.append(0)
        self._splits[number] |= splits
        return number

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._texts.__exit__(kind)
        if kind is None:
            with MappedWriter(self._folder / FILES[1], _TITLES) as titles:
                titles.extend(np.array(self._title_of), np.array(self._splits))


@dataclass(frozen=True)
class Pool:
    """Passages to draw from, and the places of those of a title."""

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
    """The passages of a folder, by number."""

    folder: Path
    fix: str
    """What to do if they are missing or damaged."""
    one_per_title: bool = True
    """Whether a pool has only the first passage of every title."""

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, number: int) -> str:
        return self._texts.value(number).decode()

    @property
    def mean_bytes(self) -> float:
        """The mean size of a passage, with its number before it."""
        size = self._texts.table.nbytes - 8 * len(self)  # less where each of them ends
        return size / max(1, len(self)) + len("Document 100:\n\n\n")

    @property
    def titles(self) -> np.ndarray:
        """The number of each passage's title: equal numbers, equal titles."""
        return self._table.numbers("title")

    def pool(self, split: Split) -> Pool:
        """Return the passages that may be distractors in a split, in their order."""
        found = np.flatnonzero(self._table.numbers("splits") & SPLITS[split])
        if self.one_per_title:
            found = found[np.sort(np.unique(self.titles[found], return_index=True)[1])]
        by_title = np.argsort(self.titles[found], kind="stable").astype(np.int32)
        return Pool(found.astype(np.int32), by_title, self.titles[found[by_title]])

    @cached_property
    def _texts(self) -> MappedFile:
        return MappedFile(self.folder / FILES[0], TEXTS, self.fix)

    @cached_property
    def _table(self) -> MappedFile:
        return MappedFile(self.folder / FILES[1], _TITLES, self.fix)

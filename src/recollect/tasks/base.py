"""The TaskFamily protocol: tasks made from a seed, as many and as long as one likes."""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol, Self

from recollect.types import Task

Split = Literal["train", "test"]


class TaskFamily(Protocol):
    """Make tasks of one kind. The same index, seed and split always give the same task."""

    name: ClassVar[str]
    """The family's name; tasks carry it as their source."""

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Make one task; no task of one split is a task of the other."""

    def longer(self, times: int) -> Self:
        """Return the same family with so many times as much text."""

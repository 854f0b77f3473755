"""Published questions that exist once: a file of tasks per variant, dealt to two splits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

from recollect.errors import UserError
from recollect.tasks.base import Split
from recollect.tasks.files.table import TaskTable
from recollect.tasks.splits import deal, pick
from recollect.types import Task


@dataclass(frozen=True)
class TabledTasks:
    """What `recollect data` wrote for a benchmark, as a task family."""

    name: ClassVar[str] = ""
    metric: ClassVar[str] = "judge"
    variants: ClassVar[tuple[str, ...]] = ()
    fix: ClassVar[str] = ""
    """How to get the files."""

    variant: str = ""
    folder: Path = Path()
    train_fraction: float = 0.0
    """Share of the tasks for training; by default all of them are for evaluation."""

    def __post_init__(self) -> None:
        if self.variant not in self.variants:
            raise UserError(
                f"{self.name} has no variant {self.variant!r}",
                f"choose from {', '.join(self.variants)}",
            )

    def size(self, split: Split) -> int:
        """Count the tasks of a split."""
        return len(self._splits[split])

    def longer(self, times: int) -> Self:
        """Refuse: the texts are as long as they are."""
        if times != 1:
            known = ", ".join(self.variants)
            raise UserError(f"{self.name} has fixed lengths", f"choose a variant: {known}")
        return self

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Return the index-th task; held-out ones come in one order and only once."""
        fix = "ask for fewer tasks, or set train_fraction"
        return self._table.task(pick(self._splits[split], index, seed, split, self.name, fix))

    def data_files(self) -> list[Path]:
        """Name the file of the variant."""
        return [self.folder / f"{self.variant}.parquet"]

    @cached_property
    def _table(self) -> TaskTable:
        return TaskTable(self.folder / f"{self.variant}.parquet", self.fix)

    @cached_property
    def _splits(self) -> dict[Split, list[int]]:
        return deal(self._table.ids, self.train_fraction)

"""The tasks of a file that `recollect data ledger` wrote, or of a published one, in its order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from recollect.errors import UserError
from recollect.tasks.base import Split
from recollect.tasks.ledger_files import read_eval, read_rows
from recollect.types import Task


@dataclass(frozen=True)
class LedgerFile:
    """Ledgers from a JSON or a Parquet file; a name that ends in _train is for training."""

    name: ClassVar[str] = "ledger"
    metric: ClassVar[str] = "value_match"
    file: Path

    def size(self, split: Split) -> int:
        """Count the tasks of a split; a file holds one of them."""
        return len(self._tasks) if split == self._split else 0

    def longer(self, times: int) -> LedgerFile:
        """Refuse: the sessions are as many as they are."""
        if times != 1:
            raise UserError(f"{self.file.name} has one length", "set --val.lengths to nothing")
        return self

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Return one task; training goes round, held-out ones come once."""
        n = self.size(split)
        if not n or (split == "test" and index >= n):
            raise UserError(
                f"{self.file} holds {n} {split} tasks, not {index + 1}",
                f"ask for at most {n}" if n else f"name a file for {split}",
            )
        return self._tasks[index % n]

    @property
    def _split(self) -> Split:
        return "train" if self.file.stem.endswith("_train") else "test"

    @cached_property
    def _tasks(self) -> list[Task]:
        return read_rows(self.file) if self.file.suffix == ".parquet" else read_eval(self.file)

"""Ledgers from files that `recollect data ledger` wrote, or from published ones, in their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from recollect.errors import UserError
from recollect.tasks.base import Split, at_most
from recollect.types import Task


@dataclass(frozen=True)
class LedgerFiles:
    """A set of ledgers: SET_train and SET_test in a folder, each as .json or as .parquet."""

    name: ClassVar[str] = "ledger"
    metric: ClassVar[str] = "answer_match"
    folder: Path = Path("data/ledger_file")
    set: str = "ss10"
    _read: dict[Split, list[Task]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def size(self, split: Split) -> int:
        """Count the tasks of a split."""
        return len(self._tasks(split))

    def longer(self, times: int) -> LedgerFiles:
        """Refuse: the sessions are as many as they are."""
        if times != 1:
            raise UserError(f"the set {self.set} has one length", "leave the length out")
        return self

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Return one task; training goes round, held-out ones come once."""
        tasks = self._tasks(split)
        if not tasks or (split == "test" and index >= len(tasks)):
            raise UserError(
                f"{self.folder} holds {len(tasks)} ledgers of {self.set}_{split}, not {index + 1}",
                at_most(len(tasks)),
            )
        return tasks[index % len(tasks)]

    def _tasks(self, split: Split) -> list[Task]:
        if split not in self._read:
            self._read[split] = self._load(split)
        return self._read[split]

    def _load(self, split: Split) -> list[Task]:
        from recollect.tasks.made.ledger_files import read_eval, read_rows  # pyarrow takes a while

        for read, ending in ((read_eval, "json"), (read_rows, "parquet")):
            path = self.folder / f"{self.set}_{split}.{ending}"
            if path.exists():
                return read(path)
        raise UserError(
            f"{self.folder} holds neither {self.set}_{split}.json nor {self.set}_{split}.parquet",
            f"`recollect data ledger --output {self.folder} --split {split}` makes sets such as"
            " ss10; published files belong there too",
        )

"""Locomo: what `recollect data locomo` wrote into a folder, as a task family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random
from typing import ClassVar

from recollect.errors import UserError
from recollect.memory.corpus import Corpus
from recollect.seeds import derive
from recollect.tasks.base import Split, Vectors
from recollect.types import Task


@dataclass(frozen=True)
class Locomo:
    """Questions about long conversations; training goes round them, in a new order every time."""

    name: ClassVar[str] = "locomo"
    metric: ClassVar[str] = "answer_overlap"
    scorers: ClassVar[tuple[str, ...]] = ("locomo_f1",)
    folder: Path = field(default_factory=lambda: Path("data/locomo"))
    """What `recollect data locomo` wrote."""

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Return the index-th task; held-out ones come in one order and only once."""
        tasks = self._splits[split]
        lap, place = divmod(index, max(1, len(tasks)))
        if not tasks or (lap and split == "test"):
            raise UserError(
                f"{self.folder} holds {len(tasks)} {split} tasks, not {index + 1}",
                f"set --val.tasks to at most {len(tasks)}"
                if tasks
                else "name other conversations with `recollect data locomo --test`",
            )
        order = list(range(len(tasks)))
        Random(derive(seed, self.name, split, lap)).shuffle(order)
        return tasks[order[place]]

    def size(self, split: Split) -> int:
        """Count the questions of a split."""
        return len(self._splits[split])

    def siblings(self, task: Task) -> list[Task]:
        """Return the other questions about a task's conversation."""
        own = self._by_conversation[task.meta["sample_id"]]
        return [other for other in own if other.id != task.id]

    def longer(self, times: int) -> Locomo:
        """Refuse: the conversations are as long as they are."""
        if times != 1:
            raise UserError("LoCoMo has one length", "leave the length out")
        return self

    def corpora(self, vectors: Vectors | None = None) -> Mapping[str, Corpus]:
        """Index the memories of every conversation."""
        from recollect.tasks.conversations.locomo_files import (
            load_corpora,  # Parquet: not for --help
        )

        return load_corpora(self.folder, vectors)

    @cached_property
    def _by_conversation(self) -> dict[str, list[Task]]:
        """Conversations are in one split or the other."""
        found: dict[str, list[Task]] = {}
        for tasks in self._splits.values():
            for task in tasks:
                found.setdefault(task.meta["sample_id"], []).append(task)
        return found

    @cached_property
    def _splits(self) -> dict[Split, list[Task]]:
        from recollect.tasks.conversations.locomo_files import load_tasks

        parts: tuple[Split, ...] = ("train", "test")
        return {part: load_tasks(self.folder / f"{part}.parquet") for part in parts}

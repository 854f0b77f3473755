"""`recollect eval RUN` or `PRESET`: what a run validates on, as its report card does.

Stores nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rich.status import Status
from rich.text import Text

from recollect.accuracy import Accuracy, accuracy
from recollect.config.train import TrainConfig
from recollect.display import open_console
from recollect.display.figures import accuracy_table
from recollect.rollout import Group
from recollect.train.loop import failures
from recollect.train.rollouts import Learner
from recollect.train.watcher import Watcher


def run_held_out(config: TrainConfig) -> int:
    """Measure and print a table; return 1 if every episode failed."""
    console = open_console()
    with console.status("loading") as status:
        rows = asyncio.run(evaluate(config, StatusLine(status)))
    lines = [([name], result) for name, result in rows.items()]
    console.print(accuracy_table([Text("Held-out accuracy", "bold")], lines))
    return 1 if all(result.failed == result.n for result in rows.values()) else 0


async def evaluate(config: TrainConfig, watcher: Watcher) -> dict[str, Accuracy]:
    """Measure at the training length, and at every multiple of it that the settings name."""
    learner = Learner.open(config, learns=False)
    for note in learner.cast.notes if config.models.fixed else ():
        watcher.note(note)
    try:
        found: dict[str, Accuracy] = {}
        val = config.val
        sizes = {1: val.tasks} | {t: val.length_tasks for t in val.lengths if t != 1}
        for times, tasks in sizes.items():
            groups = await learner.validate(watcher, times, tasks)
            name = f"{times}x the text"
            if failed := failures(groups):
                watcher.note(f"{name}: {failed}")
            found[name] = accuracy(groups)
        return found
    finally:
        learner.cast.close()


@dataclass
class StatusLine:
    """A watcher with one line to write on."""

    status: Status

    def phase(self, name: str, done: int, total: int) -> None:
        """Show how far it is."""
        self.status.update(f"{name}: {done} of {total}")

    def step(self, step: int, metrics: dict[str, float], groups: list[Group]) -> None:
        """There are no steps to show."""

    def validation(self, step: int, results: dict[str, Accuracy]) -> None:
        """The table at the end shows it."""

    def note(self, text: str) -> None:
        """Keep a remark on the screen."""
        self.status.console.print(text, markup=False)

"""`recollect eval RUN` or `PRESET`: what a run validates on, as its report card does.

Stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.status import Status
from rich.text import Text

from recollect.accuracy import Accuracy, accuracy
from recollect.commands.results import HeldOut
from recollect.concurrency import Stop
from recollect.config.train import TrainConfig
from recollect.display import open_console
from recollect.display.figures import accuracy_table
from recollect.display.numbers import estimate
from recollect.rewards.memory_delta import MemoryDelta
from recollect.rollout import Group
from recollect.tasks.base import notes_of
from recollect.train.loop import failures
from recollect.train.metrics import validation_metrics
from recollect.train.rollouts import Rollouts
from recollect.train.watcher import Watcher

REWARD = ("val/reward/mean", "val/reward/low", "val/reward/high")
"""The metrics that are shown where the reward is not the accuracy."""


def run_held_out(config: TrainConfig) -> int:
    """Measure and print a table; return 1 if every episode failed."""
    found = measure_held_out(config, open_console(), Stop())
    return 1 if all(result.failed == result.n for result in found.lengths.values()) else 0


def measure_held_out(
    config: TrainConfig, console: Console, stop: Stop, keep: bool = False
) -> HeldOut:
    """Measure, show a table on the console, and return what was measured.

    Episodes stay in memory only if `keep`: those of long texts are large.
    """
    groups: dict[int, list[Group]] = {}
    rewards: list[str] = []

    def measured(times: int, found: list[Group]) -> None:
        if keep:
            groups[times] = found
        if times == 1 and isinstance(config.reward, MemoryDelta):
            metrics = validation_metrics(found)
            rewards.append(estimate(*(metrics[key] for key in REWARD)))

    with console.status("loading") as status:
        lengths = stop.run(evaluate(config, StatusLine(status), measured))
    lines = [([f"{times}x the text"], result) for times, result in lengths.items()]
    console.print(accuracy_table([Text("Held-out accuracy", "bold")], lines))
    if rewards:
        console.print(f"\nreward   {rewards[0]}", highlight=False)
    return HeldOut(lengths, groups)


async def evaluate(
    config: TrainConfig,
    watcher: Watcher,
    on_groups: Callable[[int, list[Group]], None] = lambda _times, _groups: None,
) -> dict[int, Accuracy]:
    """Measure at the training length, and at every multiple of it that the settings name."""
    rollouts = Rollouts.open(config, learns=False)
    for note in rollouts.roles.notes if config.models.fixed else ():
        watcher.note(note)
    for note in notes_of(config.tasks):
        watcher.note(note)
    try:
        found: dict[int, Accuracy] = {}
        val = config.val
        sizes = {1: val.tasks} | {t: val.length_tasks for t in val.lengths if t != 1}
        for times, tasks in sizes.items():
            groups = await rollouts.validate(watcher, times, tasks)
            if failed := failures(groups):
                watcher.note(f"{times}x the text: {failed}")
            found[times] = accuracy(groups)
            on_groups(times, groups)
        return found
    finally:
        rollouts.roles.close()


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

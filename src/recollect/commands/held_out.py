"""`recollect eval RUN` or `PRESET`: what a run validates on, as its report card does.

Stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from recollect.accuracy import Accuracy, accuracy, by_category, parts, rewards
from recollect.commands.results import HeldOut
from recollect.concurrency.stop import Stop
from recollect.config.train import TrainConfig
from recollect.display import open_console
from recollect.display.figures import accuracy_table, plain_table
from recollect.display.numbers import estimate, interval, share
from recollect.foreign import one_line
from recollect.rewards.memory_delta import MemoryDelta
from recollect.rollout import Group
from recollect.tasks.base import notes_of
from recollect.train.failures import failures
from recollect.train.lengths import crowded_tasks
from recollect.train.rollouts import Rollouts
from recollect.train.trial import has_own_code, try_out
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
    details: dict[int, dict[str, Accuracy]] = {}
    crowds: dict[int, Accuracy] = {}

    def take(times: int, found: list[Group]) -> None:
        details[times] = detailed(found)
        if keep:
            groups[times] = found

    def take_crowd(times: int, found: list[Group]) -> None:
        crowds[times] = accuracy(found)

    with console.status("loading") as status:
        lengths = stop.run(evaluate(config, StatusLine(status), take, take_crowd))
    lines = [([f"{times}x the text"], result) for times, result in lengths.items()]
    lines += [([f"{times}x the distractors"], result) for times, result in crowds.items()]
    console.print(accuracy_table([Text("Held-out accuracy", "bold")], lines))
    if isinstance(config.reward, MemoryDelta):
        a = details[1]["reward"]
        console.print(f"\nreward   {estimate(a.mean, a.low, a.high)}", highlight=False)
    for times, found in details.items():
        console.print()
        console.print(detail_table(f"{times}x the text, in detail", found))
    return HeldOut(lengths, details, groups, crowds)


def detailed(groups: Sequence[Group]) -> dict[str, Accuracy]:
    """Return reward, scores and categories, named for people."""
    found = {"reward": rewards(groups)}
    scores = parts(groups)
    if "before" in scores:
        found |= {"performance before": scores.pop("before"), "performance after": accuracy(groups)}
    found |= {name: scores[name] for name in sorted(scores)}
    found |= {f"category {name}": own for name, own in by_category(groups).items()}
    return found


def detail_table(title: str, rows: Mapping[str, Accuracy]) -> Table:
    """Show means of any size with their intervals; a score is of the episodes that ended."""
    table = plain_table(padding=2)
    table.add_column(Text(title, "bold"), no_wrap=True)
    for header in ("mean", "95% interval", "n"):
        table.add_column(header, justify="right", no_wrap=True)
    for name, a in rows.items():
        table.add_row(one_line(name), share(a.mean), interval(a.low, a.high), f"{a.n:,}")
    return table


def _ignore(_times: int, _groups: list[Group]) -> None: ...


async def evaluate(
    config: TrainConfig,
    watcher: Watcher,
    on_groups: Callable[[int, list[Group]], None] = _ignore,
    on_crowd: Callable[[int, list[Group]], None] = _ignore,
) -> dict[int, Accuracy]:
    """Measure at the training length, and at every multiple of it that the settings name.

    Multiples of the distractors are handed to `on_crowd`.
    """
    rollouts = Rollouts.open(config, learns=False)
    for note in rollouts.roles.said():
        watcher.note(note)
    for note in notes_of(config.tasks):
        watcher.note(note)
    try:
        found: dict[int, Accuracy] = {}
        val = config.val
        if has_own_code(config):
            rollout = rollouts.rollout(val.temperature, val.top_p)
            await try_out(config, rollout, watcher.note, "test")
            rollouts.roles.reset()
        sizes = {1: val.tasks} | {t: val.length_tasks for t in val.lengths if t != 1}
        for times, tasks in sizes.items():
            groups = await rollouts.validate(watcher, times, tasks)
            if failed := failures(groups):
                watcher.note(f"{times}x the text: {failed}")
            found[times] = accuracy(groups)
            on_groups(times, groups)
        for times, family in crowded_tasks(config).items():
            on_crowd(times, await rollouts.validate_on(family, watcher, f"{times}x distractors"))
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

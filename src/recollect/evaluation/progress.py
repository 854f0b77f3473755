"""The evaluation while it runs: a live table on a terminal, a plain line now and then elsewhere.

Counting an episode costs microseconds; the table is drawn twice a second, whatever happens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from recollect.display.figures import plain_table
from recollect.display.numbers import count, duration, share
from recollect.evaluation.records import Record, questions
from recollect.evaluation.scoring import cut, score_named

PLAIN_EVERY = 15.0
"""Seconds between plain lines."""


@dataclass
class CellTally:
    """The progress of one cell."""

    total: int
    done: int = 0
    failed: int = 0
    answers: int = 0
    score: float = 0.0

    def add(self, record: Record, metric: str) -> None:
        """Count an episode; a failed one scores nothing."""
        self.done += 1
        self.answers += len(record["questions"])
        if record["failure"] is not None:
            self.failed += 1
            return
        score = score_named(metric)
        for question, answer in zip(questions(record), record["answers"], strict=True):
            self.score += score(cut(answer), question)


class Progress:
    """Shows how far an evaluation is; a context manager."""

    def __init__(
        self,
        console: Console,
        cells: Mapping[tuple[str, str], int],
        primary: Mapping[str, str],
        title: str,
        *,
        plain: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console
        self.title = title
        self.tallies = {cell: CellTally(total) for cell, total in cells.items()}
        self.primary = primary
        live = console.is_terminal and not console.is_dumb_terminal
        self.plain = not live if plain is None else plain
        self._clock = clock
        self._started = self._said = clock()
        self._before = self._calls = self._tokens = 0
        self._live: Live | None = None

    def __enter__(self) -> Self:
        self._started = self._said = self._clock()
        self._before = self.done
        if self.plain:
            self._line(f"{self.title}: {self.total - self.done} of {self.total} episodes to run")
        else:
            self._live = Live(get_renderable=self._page, console=self.console, refresh_per_second=2)
            self._live.start(refresh=True)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._live is not None:
            self._live.stop()
        elif self.done:
            self._line(self._state())

    @property
    def total(self) -> int:
        return sum(tally.total for tally in self.tallies.values())

    @property
    def done(self) -> int:
        return sum(tally.done for tally in self.tallies.values())

    def before(self, record: Record) -> None:
        """Count an episode of an earlier process."""
        tally = self.tallies.get((record["task"], record["agent"]))
        if tally is not None:
            tally.add(record, self.primary[record["task"]])

    def episode(self, record: Record) -> None:
        """Count an episode that has just ended."""
        self.before(record)
        for context in record["contexts"]:
            for read, written, *_rest in context["turns"]:
                self._calls += 1
                self._tokens += read + written
        if self.plain and self._clock() - self._said >= PLAIN_EVERY:
            self._said = self._clock()
            self._line(self._state())

    def _line(self, text: str) -> None:
        self.console.out(text, highlight=False)

    def _state(self) -> str:
        elapsed = self._clock() - self._started
        done, total = self.done, self.total
        pace = (done - self._before) / elapsed if elapsed > 0 else 0.0
        failed = sum(tally.failed for tally in self.tallies.values())
        text = f"{done}/{total} episodes, {failed} failed, {self._calls:,} calls"
        if elapsed > 0:
            text += f" ({self._calls / elapsed:,.1f}/s), {count(self._tokens)} tokens"
        text += f", {duration(elapsed)} elapsed"
        if pace and done < total:
            text += f", {duration((total - done) / pace)} left"
        return text

    def _page(self) -> RenderableType:
        head = Table.grid(padding=(0, 2))
        bar = ProgressBar(self.total, self.done, 24, complete_style="cyan", finished_style="cyan")
        head.add_row(Text(self.title, "bold"), bar, Text(self._state(), "bright_black"))
        agents = list(dict.fromkeys(agent for _task, agent in self.tallies))
        table = plain_table(padding=2)
        table.add_column("tasks", no_wrap=True)
        table.add_column("metric", style="bright_black", no_wrap=True)
        for agent in agents:
            table.add_column(agent, justify="right", no_wrap=True)
        for task in dict.fromkeys(task for task, _agent in self.tallies):
            cells = (self.tallies[task, agent] for agent in agents)
            table.add_row(task, self.primary[task], *map(_cell, cells))
        return Group(head, "", table)


def _cell(tally: CellTally) -> Text:
    if not tally.done:
        return Text("·", "bright_black")
    text = Text(share(tally.score / max(1, tally.answers)), "bold")
    text.append(f" {tally.done}/{tally.total}", "bright_black")
    if tally.failed:
        text.append(f" {tally.failed} failed", "yellow")
    return text

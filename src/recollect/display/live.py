"""The run while it trains: a live page on a terminal, one plain line per step anywhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from recollect.accuracy import Accuracy
from recollect.display.figures import accuracy_table, plain_table, sparkline
from recollect.display.numbers import duration, estimate, share
from recollect.foreign import one_line

STEPS = 8
"""Steps shown at once."""
VALIDATIONS = 5
"""Validations shown at once; with the steps they fit a terminal of 24 lines."""
PACE = 20
"""Steps whose mean duration predicts the end."""


@dataclass(frozen=True)
class Column:
    """One metric in the table of steps."""

    header: str
    metric: str
    format: str = "{:.3f}"
    alarm: Callable[[float], bool] = lambda value: not math.isfinite(value)
    """Values that deserve a look."""


COLUMNS = (
    Column("reward", "reward/mean"),
    Column("score", "score/answer"),
    Column("failed", "episodes/failed", "{:.0f}", lambda value: value > 0),
    Column("tokens", "tokens/per_turn", "{:.1f}"),
    Column("kl", "train/kl", "{:.2g}"),
    Column("mismatch", "train/mismatch", "{:.2g}"),
    Column("grad", "train/grad_norm", "{:.2f}"),
    Column("rollout", "time/rollout", "{:.1f} s"),
    Column("update", "time/update", "{:.1f} s"),
)
"""From what matters most to what a narrow terminal can do without."""


class Display:
    """Shows a run's progress; a context manager. Its facts name the model, the task, the agent."""

    def __init__(
        self,
        console: Console,
        total_steps: int,
        title: str,
        facts: Mapping[str, str] | None = None,
        *,
        done: int = 0,
        columns: Sequence[Column] = COLUMNS,
        plain: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take `done` steps as made before; `plain` overrides what the console suggests."""
        self.console = console
        self.total = total_steps
        self.title = title
        self.facts = dict(facts or {})
        self.columns = tuple(columns)
        self.plain = plain if plain is not None else not _is_live(console)
        self.done = done
        self._clock = clock
        self._ticks: tuple[float, ...] = ()
        self._started = clock()
        # Tuples, replaced whole: another thread draws them while this one adds to them.
        self._steps: tuple[tuple[int, Mapping[str, float]], ...] = ()
        self._rewards: tuple[float, ...] = ()
        self._validations: tuple[tuple[int, str, Accuracy], ...] = ()
        self._phase = ""
        self._live: Live | None = None

    def __enter__(self) -> Self:
        self._started = self._clock()
        self._ticks = (self._started,)
        if self.plain:
            facts = "".join(f", {name} {one_line(value)}" for name, value in self.facts.items())
            self._line(f"{self.title}: {self.total} steps{facts}")
        else:
            self._live = Live(get_renderable=self._page, console=self.console)
            self._live.start(refresh=True)
        return self

    def __exit__(self, *_error: object) -> None:
        self._phase = ""
        if self._live is not None:
            self._live.stop()

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show a finished step."""
        self.done = step
        self._phase = ""
        self._ticks = (*self._ticks[-PACE:], self._clock())
        self._steps = (*self._steps[1 - STEPS :], (step, dict(metrics)))
        self._rewards = (*self._rewards, metrics.get(self.columns[0].metric, math.nan))
        if self.plain:
            cells = [(c.header, _shown(c, metrics)) for c in self.columns if c.metric in metrics]
            left = f"  left {duration(self.seconds_left)}" if self.done < self.total else ""
            facts = "  ".join(f"{header} {cell}" for header, cell in cells)
            self._line(f"step {step:>{len(str(self.total))}}/{self.total}  {facts}{left}")

    def phase(self, name: str, done: int = 0, total: int = 0) -> None:
        """Show what the present step is doing; a terminal only."""
        self._phase = f"{name} {done}/{total}" if total else name

    def validation(self, step: int, rows: Sequence[tuple[str, Accuracy]]) -> None:
        """Show held-out accuracy, one (name, accuracy) for every set."""
        self._phase = ""
        self._validations += tuple((step, name, accuracy) for name, accuracy in rows)
        if self.plain:
            for name, a in rows:
                self._line(
                    f"step {step:>{len(str(self.total))}}/{self.total}  {name} accuracy"
                    f" {estimate(a.mean, a.low, a.high)}  n {a.n}  failed {a.failed}"
                    + f"  unmeasured {a.unmeasured}"
                    * (a.unmeasured > 0)
                )

    def note(self, text: str) -> None:
        """Show a warning; it stays."""
        if self.plain:
            self._line(f"note: {one_line(text)}")
        else:
            self.console.print(Text.assemble(("! ", "bold yellow"), (one_line(text), "yellow")))

    def show(self, renderable: RenderableType) -> None:
        """Print something, such as a table of rollouts, above the live page."""
        self.console.print(renderable)

    @property
    def seconds_left(self) -> float:
        """Predict the time to the end from the pace of the latest steps."""
        if len(self._ticks) < 2:
            return math.nan
        pace = (self._ticks[-1] - self._ticks[0]) / (len(self._ticks) - 1)
        return pace * (self.total - self.done)

    def _line(self, text: str) -> None:
        # Written as it is: no wrapping at a guessed width, no markup, no control codes.
        self.console.out(text, highlight=False)

    def _page(self) -> RenderableType:
        parts: list[RenderableType] = [self._header(), self._bar()]
        if self._steps:
            parts += ["", self._reward_line(), "", self._step_table()]
        if self._validations:
            parts += ["", self._validation_table()]
        return Group(*parts)

    def _header(self) -> Text:
        header = Text.assemble((self.title, "bold"), overflow="ellipsis", no_wrap=True)
        for name, value in self.facts.items():
            header.append(f"   {name} ", "bright_black").append(one_line(value))
        return header

    def _bar(self) -> Table:
        elapsed = self._clock() - self._started
        left = self.seconds_left
        times = f"{duration(elapsed)} elapsed"
        if self.done < self.total and math.isfinite(left):
            times += f", {duration(left)} left"
        grid = Table.grid(padding=(0, 2))
        grid.add_row(
            ProgressBar(self.total, self.done, 40, complete_style="cyan", finished_style="cyan"),
            f"{self.done}/{self.total}",
            Text(times, "bright_black"),
            Text(self._phase, "cyan"),
        )
        return grid

    def _reward_line(self) -> Text:
        known = [reward for reward in self._rewards if math.isfinite(reward)]
        if not known:
            return Text()
        return Text.assemble(
            ("reward  ", "bright_black"),
            (sparkline(known, 50), "cyan"),
            ("  from ", "bright_black"),
            share(known[0]),
            (" to ", "bright_black"),
            (share(known[-1]), "bold"),
        )

    def _step_table(self) -> Table:
        known = [c for c in self.columns if any(c.metric in metrics for _, metrics in self._steps)]
        cells = [[_shown(c, metrics) for c in known] for _step, metrics in self._steps]
        names = [str(step) for step, _metrics in self._steps]
        room = self.console.width - max(map(len, [*names, "step"]))
        table = plain_table()
        table.add_column("step", justify="right", no_wrap=True)
        shown = 0
        for i, column in enumerate(known):
            width = max(len(column.header), *(len(row[i]) for row in cells))
            room -= width + 3
            if room < 0:
                break
            table.add_column(column.header, justify="right", min_width=width)
            shown += 1
        for (_step, metrics), name, row in zip(self._steps, names, cells, strict=True):
            styles = ["bold" if i == 0 else "" for i in range(shown)]
            for i, column in enumerate(known[:shown]):
                if column.metric in metrics and column.alarm(metrics[column.metric]):
                    styles[i] = "yellow"
            texts = [Text(cell, style) for cell, style in zip(row, styles, strict=False)]
            table.add_row(name, *texts)
        return table

    def _validation_table(self) -> Table:
        # The first one is what the rest is compared with, so it stays.
        shown = self._validations
        if len(shown) > VALIDATIONS:
            shown = (shown[0], *shown[1 - VALIDATIONS :])
        rows = [((f"{step:>4}", name), accuracy) for step, name, accuracy in shown]
        return accuracy_table([Text("step"), Text("held out")], rows)


def _shown(column: Column, metrics: Mapping[str, float]) -> str:
    return column.format.format(metrics[column.metric]) if column.metric in metrics else ""


def _is_live(console: Console) -> bool:
    return console.is_terminal and not console.is_dumb_terminal

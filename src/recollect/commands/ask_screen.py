"""What `recollect ask` shows: the memory while it grows, the time left, passages and cost."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from recollect.display.numbers import count, duration
from recollect.foreign import one_line
from recollect.keeping.evidence import Passage
from recollect.keeping.keeper import Cost, Progress, memory_text

SHOWN = 6
"""Lines of a memory that are shown while it grows."""
EVERY = 5.0
"""Seconds between two lines of progress where there is no screen."""


@dataclass
class Watching:
    """Shows the memory while it changes, and how long reading will still take."""

    console: Console
    quiet: bool = False
    started: float = field(default_factory=time.monotonic)
    _first: int | None = None
    _told: float = 0.0
    _live: Live | None = None

    def __enter__(self) -> Watching:
        if self.console.is_terminal and not self.quiet:
            self._live = Live(console=self.console, transient=True, refresh_per_second=8)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, progress: Progress) -> None:
        """Take the next state."""
        if self._first is None:
            self._first = progress.tokens
        line = f"{progress.window} of {progress.windows} windows{self._left(progress)}"
        if self._live:
            bar = ProgressBar(max(1, progress.total), progress.tokens, width=40)
            lines = memory_text(progress.memory).strip().splitlines()[-SHOWN:]
            shown = Text("\n".join(one_line(text, 200) for text in lines), "italic")
            self._live.update(Group(Text(line), bar, shown))
        elif not self.quiet and time.monotonic() - self._told > EVERY:
            self._told = time.monotonic()
            self.console.print(line, style="dim", highlight=False)

    def _left(self, progress: Progress) -> str:
        done = progress.tokens - (self._first or 0)
        if not done or progress.tokens >= progress.total:
            return ""
        spent = time.monotonic() - self.started
        left = spent / done * (progress.total - progress.tokens)
        return f", {duration(left)} left"


def price(cost: Cost) -> str:
    """Say what models were asked for."""
    calls = "1 call" if cost.calls == 1 else f"{count(cost.calls)} calls"
    return f"{calls}, {count(cost.prompt_tokens)} tokens in, {count(cost.reply_tokens)} out"


def cited(passage: Passage) -> str:
    """Show a passage and where it is."""
    where = f"{one_line(passage.document, 60)}, at {passage.place:.2f}"
    return f"  [{where}] {one_line(passage.text, 240)}"

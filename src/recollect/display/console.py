"""The one door to the terminal. Imports little, so that a command can say something at once."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from recollect.foreign import shown


def open_console(quiet: bool = False) -> Console:
    """Return a console on stdout that prints a stand-in for what its encoding cannot show."""
    if quiet:
        return Console(quiet=True, file=io.StringIO(), markup=False, emoji=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if not os.environ.get("COLUMNS", "0").strip("0"):  # a width of nothing shows nothing
        os.environ.pop("COLUMNS", None)
    return _Console(markup=False, emoji=False)  # names of files and models are text, not orders


class _Console(Console):
    """The one door to the terminal: no text that passes through it can act on the terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does, with every text made safe; rich lets escape codes through."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else shown(text), style, control)

    def on_broken_pipe(self) -> None:
        """Leave it to the command what it means that nobody reads."""
        raise

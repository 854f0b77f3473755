"""How `recollect data` speaks: plain lines, never cut and never read as markup."""

from __future__ import annotations

from rich.console import Console


def say(console: Console, text: str) -> None:
    """Print a line as it is."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)

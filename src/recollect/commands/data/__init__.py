"""`recollect data`: make the data that tasks are read from, say what was made, and check it."""

from __future__ import annotations

from recollect.commands.data.verbs import run_data

__all__ = ["run_data"]

"""How a run on a cluster is asked to stop: a file in its folder, which every node sees.

The trainer looks for it after each step, saves, and leaves. Knows nothing of Ray.
"""

from __future__ import annotations

from pathlib import Path

STATUS = 75
"""The exit status of a run that stopped because it was asked to."""
_NAME = ".stop"


class Stopped(Exception):
    """The run was saved and left because it was asked to stop."""


def ask(run: Path) -> None:
    """Ask a run to stop after its step."""
    (run / _NAME).touch()


def asked(run: Path) -> bool:
    """Tell whether a run was asked to stop."""
    return (run / _NAME).exists()


def forget(run: Path) -> None:
    """Take the request back: a run that starts has not been asked."""
    (run / _NAME).unlink(missing_ok=True)

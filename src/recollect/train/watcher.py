"""Callbacks for training progress."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Protocol

from recollect.accuracy import Accuracy
from recollect.rollout import Group
from recollect.types import Episode


class Watcher(Protocol):
    """Callbacks for training progress."""

    def step(self, step: int, metrics: dict[str, float], groups: list[Group]) -> None:
        """A step has ended; step 0 is the validation before training."""

    def validation(self, step: int, results: dict[str, Accuracy]) -> None:
        """Held-out accuracy was measured after `step`, of all tasks and by category."""

    def phase(self, name: str, done: int, total: int) -> None:
        """What is being done right now, and how far it is."""

    def note(self, text: str) -> None:
        """Something a person should know."""


def counter(watcher: Watcher, phase: str, total: int) -> Callable[[Episode], None]:
    """Tell the watcher how many episodes of a phase are done."""
    done = itertools.count(1)
    watcher.phase(phase, 0, total)
    return lambda _episode: watcher.phase(phase, next(done), total)

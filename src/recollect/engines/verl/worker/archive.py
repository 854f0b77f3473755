"""The archive: where agent-loop workers leave whole episodes for the trainer, failed ones included.

verl's rows hold what is trained and nothing else. What an episode was worth, what its fixed models
said and why it failed travel here: one Ray actor per run, emptied at every step.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import ray

from recollect.errors import UserError
from recollect.types import Episode

NAME = "recollect_archive"


@dataclass
class Taken:
    """What the trainer gets at the end of a batch."""

    groups: list[list[Episode]]
    """In the order asked for; of each task the episodes in the order of their sessions."""
    failed_calls: Counter[str]


@dataclass
class Archive:
    """Keep episodes by task until they are taken."""

    _episodes: dict[str, list[Episode]] = field(default_factory=dict)
    _failed_calls: Counter[str] = field(default_factory=Counter)
    _error: Exception | None = None

    def put(self, uid: str, episode: Episode, failed_calls: Counter[str]) -> None:
        """Leave an episode of the task that verl calls `uid`."""
        self._episodes.setdefault(uid, []).append(episode)
        self._failed_calls += failed_calls

    def stop(self, error: Exception) -> None:
        """Leave word of something that ends the run: a user's mistake, or a bug."""
        if self._error is None or isinstance(error, UserError):
            self._error = error

    def take(self, uids: list[str]) -> Taken:
        """Hand over the episodes of tasks and forget all others."""
        if self._error is not None:
            raise self._error
        groups = [
            sorted(self._episodes.get(uid, []), key=lambda episode: episode.rollout) for uid in uids
        ]
        taken = Taken(groups, self._failed_calls)
        self._episodes, self._failed_calls = {}, Counter()
        return taken


def open_archive() -> Any:
    """Start this run's archive, or find the one that is there."""
    return ray.remote(Archive).options(name=NAME, get_if_exists=True, num_cpus=0).remote()


def find_archive() -> Any:
    """Return this run's archive from any process of the run."""
    return ray.get_actor(NAME)

"""The batches of episodes of a run: each made when it is asked for, or while one is learned from.

A batch that is made ahead was drawn with the weights before the update that it was made beside. It
is part of a checkpoint, because the weights that drew it are gone by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from recollect.rollout import Group
from recollect.runs.checkpoints import PENDING
from recollect.runs.episodes import read_episodes, write_episodes
from recollect.train.rollouts import Rollouts
from recollect.train.watcher import Watcher

T = TypeVar("T")


class Batches:
    """Make the episodes of one step after the other, `rollout.ahead` steps early."""

    def __init__(self, rollouts: Rollouts, watcher: Watcher) -> None:
        self.rollouts = rollouts
        self.watcher = watcher
        self._next: asyncio.Future[list[Group]] | None = None
        """The batch after the last finished step, where it was begun."""
        self._stream: torch.cuda.Stream | None = None

    async def take(self, step: int) -> list[Group]:
        """Return the episodes of a step, or raise what kept them from being made."""
        if self._next is not None:
            return await self._next
        return await self.rollouts.generate(step, self.watcher)

    async def beside(self, step: int, work: Callable[[], T]) -> T:
        """Do some work that moves the weights; meanwhile begin the episodes of `step` if asked."""
        config = self.rollouts.config
        self._next = None
        if not config.rollout.ahead or step > config.steps:
            return work()
        self._next = asyncio.create_task(self.rollouts.generate(step, self.watcher))
        try:
            return await asyncio.to_thread(self._apart, work)
        except BaseException:
            self._next.cancel()
            raise

    async def settle(self) -> None:
        """Wait for episodes that were begun."""
        if self._next is not None:
            await asyncio.wait([self._next])
            self._next.exception()  # raised again for the caller that takes the batch

    def sync(self) -> None:
        """Let the next episodes be drawn with the weights as they are now."""
        self.rollouts.roles.refresh()

    def _apart(self, work: Callable[[], T]) -> T:
        """Work in a stream of its own: one that is kept, because each keeps its own memory."""
        device = self.rollouts.model.device
        if device.type != "cuda":
            return work()
        self._stream = self._stream or torch.cuda.Stream(device)
        self._stream.wait_stream(torch.cuda.default_stream(device))
        with torch.cuda.stream(self._stream):
            done = work()
        self._stream.synchronize()
        return done

    def save(self, folder: Path) -> None:
        """Write the batch that a run resumed here continues with, if it is already there.

        One in which all failed is left out: a run that ended of it would end of it again.
        """
        if self._next is not None and self._next.done() and not self._next.exception():
            episodes = [episode for group in self._next.result() for episode in group]
            if any(episode.ok for episode in episodes):
                write_episodes(folder / PENDING, episodes)

    def load(self, folder: Path) -> None:
        """Take up what `save` wrote, and draw what comes next with the weights that were loaded."""
        self.sync()
        if self.rollouts.config.rollout.ahead and (folder / PENDING).exists():
            self._next = asyncio.get_running_loop().create_future()
            self._next.set_result(read_groups(folder / PENDING))


def read_groups(path: Path) -> list[Group]:
    """Read episodes back in groups; the numbers of siblings begin at 0."""
    groups: list[Group] = []
    for episode in read_episodes(path):
        if episode.rollout == 0:
            groups.append([])
        groups[-1].append(episode)
    return groups

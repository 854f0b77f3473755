"""Time limits of episodes, which know whose time it was: the agent's, or what it waited for.

The replies of its own models are the agent's time. When the limit strikes, those of a model that
learns are still awaited, because their tokens are what is trained.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")


Spans = dict[object, float]
"""When each unfinished operation began."""


class OutOfTime(Exception):
    """An episode met its time limit."""


class Deadline:
    """The time limit of one episode."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.over = False
        self.hung = False
        """Whether a reply did not come even when it was awaited after the limit."""
        self._began = time.perf_counter()
        self._waited: list[tuple[float, float]] = []
        self._waiting: Spans = {}
        self._replying: Spans = {}
        self._quiet = asyncio.Event()
        """Set while none of the agent's own models is replying."""
        self._quiet.set()

    async def run(self, work: Coroutine[Any, Any, T], patient: bool) -> T:
        """Run an episode, and raise OutOfTime when the limit strikes.

        If `patient`, replies in flight are then awaited for as long again.
        """
        token = _current.set(self)
        try:
            if self.seconds is None:
                return await work
            task = asyncio.ensure_future(work)
        finally:
            _current.reset(token)
        try:
            await asyncio.wait({task}, timeout=self.seconds)
            if not task.done():
                self.over = True
                await self._last_replies(task, self.seconds if patient else 0)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if self.over and (task.cancelled() or not task.exception()):
            raise OutOfTime(f"no end in {self.seconds:g} s, {self._waits():.3g} s of it waiting")
        return task.result()

    async def _last_replies(self, task: asyncio.Future[T], seconds: float | None) -> None:
        if self._replying and seconds:
            quiet = asyncio.ensure_future(self._quiet.wait())
            first: set[asyncio.Future[Any]] = {task, quiet}
            await asyncio.wait(first, timeout=seconds, return_when="FIRST_COMPLETED")
            quiet.cancel()
            self.hung = bool(self._replying)
        # A reply that has not come by now was waited for in vain.
        now = time.perf_counter()
        self._waited += [(since, now) for since in self._replying.values()]

    @property
    def was_agents(self) -> bool:
        """Whether the time was the agent's: less than half of it was spent waiting for others."""
        spent = time.perf_counter() - self._began
        return not self.hung and self._waits() < min(spent, self.seconds or spent) / 2

    def _waits(self) -> float:
        """Return the seconds until the limit in which something else than the agent was at work."""
        now = time.perf_counter()
        last = min(now, self._began + (self.seconds or now))
        total, end = 0.0, 0.0
        for start, stop in sorted([*self._waited, *((s, now) for s in self._waiting.values())]):
            total += max(0.0, min(stop, last) - max(start, end))
            end = max(end, stop)
        return total


_current: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


class _Mark(AbstractContextManager[None]):
    """Marks an operation as running; marks inside it are ignored."""

    def __init__(self, deadline: Deadline, spans: Spans) -> None:
        self._deadline, self._spans = deadline, spans

    def __enter__(self) -> None:
        self._spans[self] = time.perf_counter()
        self._token = _current.set(None)

    def __exit__(self, *_error: object) -> None:
        _current.reset(self._token)
        since = self._spans.pop(self)
        deadline = self._deadline
        if self._spans is deadline._waiting:
            deadline._waited.append((since, time.perf_counter()))
        if not deadline._replying:
            deadline._quiet.set()


NO_MARK: AbstractContextManager[None] = nullcontext()


def waiting() -> AbstractContextManager[None]:
    """Mark time that is not the agent's."""
    deadline = _current.get()
    return NO_MARK if deadline is None else _Mark(deadline, deadline._waiting)


def replying() -> AbstractContextManager[None]:
    """Mark the reply of one of the agent's own models: the agent's time, whatever it waits for."""
    deadline = _current.get()
    if deadline is None:
        return NO_MARK
    deadline._quiet.clear()
    return _Mark(deadline, deadline._replying)


def time_is_over() -> bool:
    """Tell whether an agent's time is over: it is about to be cancelled, and has to `hold`."""
    deadline = _current.get()
    return deadline is not None and deadline.over


async def hold() -> None:
    """Wait to be cancelled."""
    await asyncio.get_running_loop().create_future()

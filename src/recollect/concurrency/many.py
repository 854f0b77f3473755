"""Run many coroutines at once, and compute a value once for all who ask."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


async def concurrently(jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all results in order. If one fails, cancel the others, wait for them, and raise it."""
    given = list(jobs)
    if len(given) == 1:  # most tasks ask one question, and a task of asyncio takes its time
        return [await given[0]]
    tasks = [asyncio.ensure_future(job) for job in given]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def running_task() -> asyncio.Task[Any] | None:
    """Return the task that calls this; none where no event loop runs."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


async def apart(work: Callable[[], T]) -> T:
    """Do work that blocks, such as waiting for a disk, in a thread.

    Who is cancelled waits for it to end: nobody else meets it half done.
    """
    doing = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait({doing})
        raise


class Once(Generic[K, V]):
    """A cache for coroutines. A failure reaches everyone who waits for it, and is not kept."""

    def __init__(self, most: int = 1 << 20) -> None:
        self.most = most
        """Values kept; beyond them the oldest go."""
        self.values: dict[K, V] = {}
        self._flights: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, compute: Callable[[], Awaitable[V]]) -> V:
        """Return the value of a key; the first to ask has it computed."""
        if key in self.values:
            return self.values[key]
        flight = self._flights.get(key)
        # A flight of a loop that has ended will never land.
        if flight is None or flight.get_loop() is not asyncio.get_running_loop():
            flight = asyncio.ensure_future(self._compute(key, compute))
            flight.add_done_callback(_retrieve)
            self._flights[key] = flight
        # Shielded: whoever asked first may be cancelled while others still wait.
        return await asyncio.shield(flight)

    async def _compute(self, key: K, compute: Callable[[], Awaitable[V]]) -> V:
        try:
            value = await compute()
            while len(self.values) >= self.most:
                del self.values[next(iter(self.values))]
            self.values[key] = value
            return value
        finally:
            if self._flights.get(key) is asyncio.current_task():
                del self._flights[key]


def _retrieve(flight: asyncio.Task[V]) -> None:
    """Retrieve the exception so asyncio does not warn when every waiter was cancelled."""
    if not flight.cancelled():
        flight.exception()

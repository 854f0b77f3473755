"""Coroutines: run many at once, stop them from outside, and compute a value once for all."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


async def concurrently(jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all results in order. If one fails, cancel the others, wait for them, and raise it."""
    tasks = [asyncio.ensure_future(job) for job in jobs]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


class Stop:
    """A way to end work from another thread: after what it is doing, or at once."""

    def __init__(self) -> None:
        self.soon = threading.Event()
        """Set when the work should end as soon as nothing would be lost."""
        self._now = threading.Event()
        self._work: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, as `asyncio.run` does; `now` in another thread cancels it."""

        async def watched() -> T:
            task = asyncio.current_task()
            assert task is not None
            self._work = asyncio.get_running_loop(), task
            if self._now.is_set():
                task.cancel()
            try:
                return await coroutine
            finally:
                self._work = None

        with asyncio.Runner() as runner:
            return runner.run(watched())

    def now(self) -> None:
        """Cancel what is running, or what starts next."""
        self._now.set()
        if (work := self._work) is not None:
            loop, task = work
            loop.call_soon_threadsafe(task.cancel)


def outside_loops(work: Callable[[Stop], T]) -> T:
    """Do blocking work that runs coroutines, also where an event loop runs already: a notebook.

    There it happens in a thread of its own. The first interrupt then asks it to stop soon, and the
    second one cancels it.
    """
    stop = Stop()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work(stop)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(contextvars.copy_context().run, work, stop)
        while True:
            try:
                return done.result()
            except KeyboardInterrupt:
                if stop.soon.is_set():
                    stop.now()
                stop.soon.set()
            except asyncio.CancelledError:
                raise KeyboardInterrupt from None


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

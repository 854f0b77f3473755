"""Values computed once per key, however many ask for them at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


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
            flight.add_done_callback(_noticed)
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


def _noticed(flight: asyncio.Task[V]) -> None:
    """Look at how a flight ended: one that fails after all who asked have left is no one's news."""
    if not flight.cancelled():
        flight.exception()

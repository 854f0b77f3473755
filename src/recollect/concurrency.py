"""Run coroutines at once; the first error ends them all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


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

"""Memory that large requests leave behind is given back: the C library would keep it."""

from __future__ import annotations

import asyncio
import ctypes
import sys

SECONDS = 10.0
"""Between two times; one takes some milliseconds, in which other threads keep running."""


def give_back() -> bool:
    """Return freed memory to the system; False where the C library has no such function."""
    if sys.platform != "linux":
        return False
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; other libraries have none
    return bool(trim(0)) if trim else False


async def keep_giving_back() -> None:
    """Give memory back every now and then, away from the event loop."""
    while True:
        await asyncio.sleep(SECONDS)
        await asyncio.to_thread(give_back)

"""Memory of requests that are over goes back to the system."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from recollect.serve.freed import give_back


def resident() -> float:
    return psutil.Process().memory_info().rss / 2**20


def fill_and_free() -> None:
    """Leave a heap as many requests do: all freed but a piece here and there."""
    held = [bytes(1000) for _ in range(60_000)]
    kept.extend(held[::2000])


kept: list[bytes] = []


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc's malloc can be asked")
def test_what_was_freed_goes_back_to_the_system():
    with ThreadPoolExecutor(4) as pool:  # every thread has a heap of its own
        list(pool.map(lambda _: fill_and_free(), range(8)))
    before = resident()
    assert give_back()
    assert resident() < before - 20, (before, resident())

"""Threads that compute share the interpreter with those that always have work."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from recollect.concurrency.threads import INTERVAL, share_interpreter


@pytest.fixture(autouse=True)
def _as_before():
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


def given_away(times: int) -> float:
    """Return how long a thread needs that gives the interpreter away so often, as torch does."""
    took: list[float] = []

    def work() -> None:
        started = time.perf_counter()
        for _ in range(times):
            time.sleep(0)
        took.append(time.perf_counter() - started)

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        sum(range(100))
    return took[0]


def test_a_thread_that_gives_the_interpreter_away_gets_it_back_soon():
    sys.setswitchinterval(0.005)
    slow = [given_away(10) for _ in range(8)]
    share_interpreter()
    assert sys.getswitchinterval() == pytest.approx(INTERVAL)
    # On a busy machine either thread may be held up for a while, which takes or spares waiting.
    assert min(given_away(10) for _ in range(8)) < max(slow) / 3


def test_a_shorter_interval_of_somebody_else_stays():
    sys.setswitchinterval(INTERVAL / 10)
    share_interpreter()
    assert sys.getswitchinterval() == pytest.approx(INTERVAL / 10)

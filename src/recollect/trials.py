"""What trials of a user's own code share: who failed, and where it is while it takes long."""

from __future__ import annotations

import asyncio
import gc
import math
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

from recollect.errors import innermost
from recollect.foreign import LONGEST, one_line
from recollect.types import Episode, Failure

PLAIN = ("AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "OwnMistake",
         "TypeError", "UnboundLocalError")  # fmt: skip
"""Errors of code that no reply of a model can be the cause of."""
PATIENCE = 30.0
"""Seconds of a trial before it is said where it is."""


def mistake(episodes: Sequence[Episode]) -> Failure | None:
    """Return the first failure if all episodes failed in a user's own code."""
    failures = [episode.failure for episode in episodes]
    if all(failure is not None and failure.place for failure in failures):
        return failures[0] and replace(failures[0], message=one_line(failures[0].message, LONGEST))
    return None


def fix_of(found: Failure, usual: str) -> str:
    """Say how to correct a mistake in a user's own code."""
    return "await it" if "'coroutine' object" in found.message else usual


@contextmanager
def unawaited() -> Iterator[None]:
    """Silence warnings about replies that were never awaited: the mistake is reported anyway.

    The collector looks only through what is new: torch and transformers take it 0.3 s.
    """
    frozen = gc.get_freeze_count() > 0
    if not frozen:
        gc.freeze()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            yield
            gc.collect()
    finally:
        if not frozen:
            gc.unfreeze()


@contextmanager
def noticed(say: Callable[[str], None]) -> Iterator[None]:
    """Say once where a user's own code is, if what runs in this event loop takes long.

    Looks from a thread of its own, as that code may block the loop.
    """
    loop, thread = asyncio.get_running_loop(), threading.get_ident()

    def look() -> None:
        place = _whereabouts(loop, thread)
        at = f", and is at {place}" if place else ""
        say(f"a trial of your own code has taken {PATIENCE:g} s{at}; Ctrl-C ends it")

    timer = threading.Timer(PATIENCE, look)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _whereabouts(loop: asyncio.AbstractEventLoop, thread: int) -> str:
    """Return where own code blocks a loop, else where most of what the loop runs is waiting."""
    callers, frame = [], sys._current_frames().get(thread)
    while frame is not None and frame.f_code.co_filename != asyncio.events.__file__:
        callers.append((frame, frame.f_lineno))
        frame = frame.f_back
    # Without the loop's own call in between, the loop itself waits, and the rest is who runs it.
    if frame is not None and (blocked := innermost(reversed(callers))):
        return blocked
    # Of as many, those begun last: a task that waits for another began before it.
    tasks = sorted(asyncio.all_tasks(loop), key=_begun, reverse=True)
    places = Counter(innermost(_awaited(task.get_coro())) for task in tasks)
    places.pop("", None)
    return max(places, key=places.__getitem__, default="")


def _begun(task: asyncio.Task[Any]) -> float:
    """Return a task's number, which its name has unless its maker gave it another."""
    number = task.get_name().removeprefix("Task-")
    return int(number) if number.isdecimal() else math.inf


def _awaited(waiting: Any) -> Iterator[tuple[FrameType, int]]:
    """Yield the frame of a coroutine, and of all that it waits for; generators of async hide it."""
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        yield frame, frame.f_lineno
        waiting = waiting.cr_await

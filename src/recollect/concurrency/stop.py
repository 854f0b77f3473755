"""Stop work from outside: by a signal, or from another thread.

A user's own code may block the event loop, or raise what ends Python; neither ends more than it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
Handler = Callable[[int, FrameType | None], object]

PATIENCE = 2.0
"""Seconds for which a user's own code may block an event loop that was asked to stop."""


class Interrupted(KeyboardInterrupt):
    """A person's Ctrl-C, or a signal that means the same; a plain KeyboardInterrupt is raised by
    code, while a `Stop` listens."""


class Stop:
    """A way to end work: after what it is doing, or at once.

    Other threads have methods for that, and signals interrupt it. What was asked to stop is
    watched from then on, because a user's own code may block the event loop.
    """

    def __init__(self) -> None:
        self.soon = threading.Event()
        """Set when the work should end as soon as nothing would be lost."""
        self.forced = False
        """Whether a user's own code was ended because it blocked the event loop."""
        self._now = threading.Event()
        self._work: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._interrupted = False
        self._asked = signal.SIGINT
        self._answered = False
        self._hears = False
        self._leaving: asyncio.AbstractEventLoop | None = None
        """The loop of work that is over, while what it began is ended."""
        self._refused = 0
        """How often in a row a task was met there that was cancelled and did not end."""
        self._before_alarm: tuple[Any, tuple[float, float]] | None = None
        """Whose alarm there was, and when it was due, while this one watches."""

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

        # A user's own code may change the current folder; who named paths meant this one.
        with (
            contextlib.chdir(Path.cwd()),
            self._hearing(),
            contextlib.ExitStack() as after,
            asyncio.Runner() as runner,
        ):
            loop = runner.get_loop()
            task = loop.create_task(watched())
            # An interrupt that is raised leaves nobody who would look at how the task ended.
            after.callback(lambda: task.done() and (task.cancelled() or task.exception()))
            self._leaving = None
            try:
                return self._complete(task)
            finally:
                self._leaving, self._refused = loop, 0

    def _complete(self, task: asyncio.Task[T]) -> T:
        while True:
            try:
                return task.get_loop().run_until_complete(task)
            except asyncio.CancelledError:
                if self._interrupted:
                    raise Interrupted from None
                raise
            except Interrupted:
                raise
            except (KeyboardInterrupt, SystemExit) as error:
                if task.done():
                    what = f"it ended Python ({ending(error)})"
                    raise RuntimeError(what).with_traceback(error.__traceback__) from None
                # Some task of a user's own raised it. Who awaits that task is told.

    def now(self) -> None:
        """Cancel what is running, or what starts next."""
        self._now.set()
        if (work := self._work) is not None:
            loop, task = work
            loop.call_soon_threadsafe(task.cancel)

    def watch(self, number: int) -> None:
        """Send a signal again if a user's own code blocks the event loop after it."""
        if self._hears:
            self._asked = signal.Signals(number)
            self._expect_answer()
            handler = signal.signal(signal.SIGALRM, self._tick)
            due = signal.setitimer(signal.ITIMER_REAL, PATIENCE, PATIENCE)
            self._before_alarm = self._before_alarm or (handler, due)

    @contextlib.contextmanager
    def _hearing(self) -> Iterator[None]:
        """Listen to signals; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.getsignal(number) for number in stops}

        try:
            for number in stops:
                if callable(old := before[number]):  # neither ignored nor left to the system
                    signal.signal(number, partial(self._hear, old))
            self._hears = True
            yield
        finally:
            self._hears = False
            self._give_alarm_back()
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _give_alarm_back(self) -> None:
        if self._before_alarm:
            (handler, due), self._before_alarm = self._before_alarm, None
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
            signal.setitimer(signal.ITIMER_REAL, *due)

    def _hear(self, old: Handler, number: int, frame: FrameType | None) -> None:
        try:
            old(number, frame)
        except KeyboardInterrupt:
            self._interrupt()

    def _interrupt(self) -> None:
        """Cancel what is running; raise at once if that was asked for before."""
        if self._interrupted or self._work is None:
            raise Interrupted
        self._interrupted = True
        _loop, task = self._work
        task.cancel()
        self.watch(signal.SIGINT)

    def _expect_answer(self) -> None:
        self._answered = False
        if self._work is not None:  # also wakes the loop
            self._work[0].call_soon_threadsafe(setattr, self, "_answered", True)

    def _tick(self, _number: int, frame: FrameType | None) -> None:
        if self._leaving:
            self._leave(self._leaving)
            return
        if self._answered or self._work is None or not _in_own_code(frame):
            self._expect_answer()
            return
        self.forced = True
        if not self._interrupted:
            signal.raise_signal(self._asked)
        raise asyncio.CancelledError

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """End Python, if a task of a user's own refuses to end: such a task would hang it.

        Threads are waited for: what they do ends, and nobody else meets it half done.
        """
        refuses = any(task.cancelling() for task in asyncio.all_tasks(loop))
        self._refused = self._refused + 1 if refuses else 0
        if self._refused > 2:
            sys.stdout.flush()
            sys.stderr.write("recollect: stopped; a task of your own refused to be cancelled\n")
            sys.stderr.flush()
            os._exit(128 + self._asked)


def ending(error: BaseException) -> str:
    """Write down what ends Python."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _in_own_code(frame: FrameType | None) -> bool:
    """Tell whether an event loop runs a user's own code."""
    while frame is not None and frame.f_code.co_filename != asyncio.events.__file__:
        if is_own_code(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


def is_own_code(filename: str) -> bool:
    """Tell whether a file is neither ours, nor Python's, nor an installed package's."""
    path = Path(filename)
    libraries = (Path(__file__).parents[1], Path(contextlib.__file__).parent)
    installed = not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
    frozen = filename.startswith("<frozen ")
    return not installed and not frozen and not any(path.is_relative_to(p) for p in libraries)


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

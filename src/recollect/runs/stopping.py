"""Requests to stop: Ctrl-C, SIGTERM (clusters, before they kill) and SIGHUP (a closed terminal).

A process that was asked to stop ends with the status 128 + the signal's number, as shells have it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from recollect.concurrency.stop import Handler, Interrupted, Stop

T = TypeVar("T")

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOPPED = "recollect: stopped"
"""What a command says that was interrupted."""


def status_of(number: int) -> int:
    """Return the exit status of a process that a signal stopped."""
    return 128 + number


@contextmanager
def heard(handler: Handler, numbers: tuple[signal.Signals, ...] = STOPS) -> Iterator[None]:
    """Call `handler` at signals while the block runs; those that are ignored stay ignored."""
    before = {}
    if threading.current_thread() is threading.main_thread():  # no other thread may listen
        wanted = [n for n in numbers if signal.getsignal(n) != signal.SIG_IGN]
        before = {number: signal.signal(number, handler) for number in wanted}
    try:
        yield
    finally:
        for number, old in before.items():
            # One that was not set from Python cannot be set again from here.
            signal.signal(number, signal.SIG_DFL if old is None else old)


class Interrupts:
    """Let SIGTERM and SIGHUP do what Ctrl-C does, anywhere in a program, and tell them apart."""

    def __init__(self) -> None:
        self._number = int(signal.SIGINT)

    @property
    def status(self) -> int:
        """The exit status of a process that was interrupted."""
        return status_of(self._number)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Listen while the block runs; it sees a KeyboardInterrupt."""
        default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with (
            heard(self._interrupt, (signal.SIGTERM, signal.SIGHUP)),
            heard(self._raise, (signal.SIGINT,) if default else ()),
        ):
            yield

    def _raise(self, _number: int, frame: FrameType | None) -> None:
        """Interrupt; while something is imported, end at once.

        Libraries drop exceptions there, and then cannot be loaded, or end Python themselves.
        """
        if signal.getsignal(signal.SIGINT) == self._raise and _imports(frame):
            sys.stderr.write(f"{STOPPED}\n")
            sys.stderr.flush()
            os._exit(self.status)
        raise KeyboardInterrupt

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        self._number = number
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell's background process
            raise Interrupted
        signal.raise_signal(signal.SIGINT)  # whoever listens to it, an event loop too


def _imports(frame: FrameType | None) -> bool:
    """Tell whether an import is under way."""
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


class Stopping:
    """Whether a loop was asked to stop; made by `stop_requested`."""

    def __init__(self, note: Callable[[str], None], stop: Stop) -> None:
        self.number = 0
        """The signal that asked for it; 0 for none."""
        self._note = note
        self._stop = stop
        self._abandon: Callable[[], object] | None = None

    def __bool__(self) -> bool:
        return self.number != 0 or self._stop.soon.is_set()

    @property
    def urgent(self) -> bool:
        """Whether nobody waits for the end of a step: a cluster kills half a minute later, and a
        user's own code that blocks may never end."""
        return self.number in (signal.SIGTERM, signal.SIGHUP) or self._stop.forced

    async def unless_urgent(self, work: Awaitable[T]) -> T | None:
        """Wait for work that can be done again later; None if it was abandoned to stop sooner."""
        import asyncio  # here, because the command line imports this module to start fast

        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
        self._abandon = lambda: loop.call_soon_threadsafe(task.cancel)
        if self.urgent:  # since the loop last looked
            self._abandon()
        try:
            return await task
        except asyncio.CancelledError:
            if not (self.urgent and task.cancelled()):
                raise
            return None
        finally:
            self._abandon = None

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        if self.urgent:
            self._note(f"{signal.Signals(number).name}: saving the last finished step")
            if self._abandon:
                self._abandon()
        else:
            self._note("stopping after this step; press Ctrl-C again to stop at once")
        self._stop.watch(number)


@contextmanager
def stop_requested(note: Callable[[str], None], stop: Stop | None = None) -> Iterator[Stopping]:
    """Let the first signal end a loop, saved; a second one does what it did before.

    Only the main thread is sent signals; for a loop in another one, its owner sets `stop.soon`.
    """
    stopping = Stopping(note, stop or Stop())
    before = {number: signal.getsignal(number) for number in STOPS}

    def ask(number: int, frame: FrameType | None) -> None:
        for other, handler in before.items():
            if handler is not None and handler != signal.SIG_IGN:
                signal.signal(other, handler)
        stopping._ask(number, frame)

    with heard(ask):
        yield stopping

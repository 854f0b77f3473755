"""Coroutines: run many at once, stop them from outside, compute a value once for all, limit time.

An episode's time limit also knows whose time it was: the agent's, or that of what it waited for.
The replies of its own models are the agent's time. When the limit strikes, those of a model that
learns are still awaited, because their tokens are what is trained.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Handler = Callable[[int, FrameType | None], object]

PATIENCE = 2.0
"""Seconds for which a user's own code may block an event loop that was asked to stop."""


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
        with contextlib.chdir(Path.cwd()), self._hearing(), asyncio.Runner() as runner:
            loop = runner.get_loop()
            task = loop.create_task(watched())
            while True:
                try:
                    return loop.run_until_complete(task)
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
        if self._answered or self._work is None or not _in_own_code(frame):
            self._expect_answer()
            return
        self.forced = True
        if not self._interrupted:
            signal.raise_signal(self._asked)
        raise asyncio.CancelledError


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
    libraries = (Path(__file__).parent, Path(contextlib.__file__).parent)
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


Spans = dict[object, float]
"""When each unfinished operation began."""


class OutOfTime(Exception):
    """An episode met its time limit."""


class Deadline:
    """The time limit of one episode."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.over = False
        self.hung = False
        """Whether a reply did not come even when it was awaited after the limit."""
        self._began = time.perf_counter()
        self._waited: list[tuple[float, float]] = []
        self._waiting: Spans = {}
        self._replying: Spans = {}
        self._quiet = asyncio.Event()
        """Set while none of the agent's own models is replying."""
        self._quiet.set()

    async def run(self, work: Coroutine[Any, Any, T], patient: bool) -> T:
        """Run an episode, and raise OutOfTime when the limit strikes.

        If `patient`, replies in flight are then awaited for as long again.
        """
        token = _current.set(self)
        try:
            if self.seconds is None:
                return await work
            task = asyncio.ensure_future(work)
        finally:
            _current.reset(token)
        try:
            await asyncio.wait({task}, timeout=self.seconds)
            if not task.done():
                self.over = True
                await self._last_replies(task, self.seconds if patient else 0)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if self.over and (task.cancelled() or not task.exception()):
            raise OutOfTime(f"no end in {self.seconds:g} s, {self._waits():.3g} s of it waiting")
        return task.result()

    async def _last_replies(self, task: asyncio.Future[T], seconds: float | None) -> None:
        if self._replying and seconds:
            quiet = asyncio.ensure_future(self._quiet.wait())
            first: set[asyncio.Future[Any]] = {task, quiet}
            await asyncio.wait(first, timeout=seconds, return_when="FIRST_COMPLETED")
            quiet.cancel()
            self.hung = bool(self._replying)
        # A reply that has not come by now was waited for in vain.
        now = time.perf_counter()
        self._waited += [(since, now) for since in self._replying.values()]

    @property
    def was_agents(self) -> bool:
        """Whether the time was the agent's: less than half of it was spent waiting for others."""
        spent = time.perf_counter() - self._began
        return not self.hung and self._waits() < min(spent, self.seconds or spent) / 2

    def _waits(self) -> float:
        """Return the seconds until the limit in which something else than the agent was at work."""
        now = time.perf_counter()
        last = min(now, self._began + (self.seconds or now))
        total, end = 0.0, 0.0
        for start, stop in sorted([*self._waited, *((s, now) for s in self._waiting.values())]):
            total += max(0.0, min(stop, last) - max(start, end))
            end = max(end, stop)
        return total


_current: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


class _Mark(AbstractContextManager[None]):
    """Marks an operation as running; marks inside it are ignored."""

    def __init__(self, deadline: Deadline, spans: Spans) -> None:
        self._deadline, self._spans = deadline, spans

    def __enter__(self) -> None:
        self._spans[self] = time.perf_counter()
        self._token = _current.set(None)

    def __exit__(self, *_error: object) -> None:
        _current.reset(self._token)
        since = self._spans.pop(self)
        deadline = self._deadline
        if self._spans is deadline._waiting:
            deadline._waited.append((since, time.perf_counter()))
        if not deadline._replying:
            deadline._quiet.set()


NO_MARK: AbstractContextManager[None] = nullcontext()


def waiting() -> AbstractContextManager[None]:
    """Mark time that is not the agent's."""
    deadline = _current.get()
    return NO_MARK if deadline is None else _Mark(deadline, deadline._waiting)


def replying() -> AbstractContextManager[None]:
    """Mark the reply of one of the agent's own models: the agent's time, whatever it waits for."""
    deadline = _current.get()
    if deadline is None:
        return NO_MARK
    deadline._quiet.clear()
    return _Mark(deadline, deadline._replying)


def time_is_over() -> bool:
    """Tell whether an agent's time is over: it is about to be cancelled, and has to `hold`."""
    deadline = _current.get()
    return deadline is not None and deadline.over


async def hold() -> None:
    """Wait to be cancelled."""
    await asyncio.get_running_loop().create_future()

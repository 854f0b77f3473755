"""A process that runs episodes for another one, which keeps the folder: see `workers`.

It is sent the settings, then one job a line, and answers with lines: E and an episode, or X and
what went wrong. Model calls it writes down itself, so that a kill of either loses none. It ends
when its input does, so it never outlives the process that started it; signals are for that one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import select
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from recollect.concurrency.garbage import RARELY
from recollect.concurrency.stop import Stop
from recollect.errors import UserError
from recollect.evaluation.calls import Calls
from recollect.evaluation.harness import Harness, Started
from recollect.evaluation.jobs import Job
from recollect.evaluation.models import open_models
from recollect.evaluation.options import read_options
from recollect.evaluation.records import Record
from recollect.evaluation.setup import known_agents, set_up
from recollect.files import Lines, line_of

LINE = 1 << 30
"""Bytes of a line: a job comes with the calls that were made for it before."""
WATCH = 0.5
"""Seconds after which a thread that watches the input looks whether it is still needed."""


class Relay:
    """Where a worker's episodes are kept: with the process that asked for them."""

    def __init__(self, file: int, lines: Lines) -> None:
        self.done: set[str] = set()
        self.known: dict[str, dict[str, Any]] = {}
        """By episode: calls that were made before."""
        self._file, self._lines = file, lines
        self._held: list[str] = []

    def calls(self, episode: str) -> Calls:
        """Return the replies that an episode got before it was cut short."""
        return Calls(episode, self._lines, self.known.pop(episode, {}))

    def add(self, record: Record) -> None:
        """Pass an episode on."""
        self.say("E", record)

    def say(self, kind: str, value: Any) -> None:
        """Pass something on, together with what comes in the same round of the event loop."""
        if not self._held:
            asyncio.get_running_loop().call_soon(self.flush)
        self._held.append(f"{kind}{line_of(value)}\n")

    def flush(self) -> None:
        """Write what is held; the other process may be gone, and its next one repeats no call."""
        data = memoryview("".join(self._held).encode())
        self._held = []
        with suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._file, data) :]


def open_harness(start: dict[str, Any], relay: Relay) -> Harness:
    """Set up what the settings ask for, as the other process did."""
    sys.path[:] = start["path"]
    options = read_options(start["options"])
    setup = set_up(options, known_agents(options))
    opened = open_models(options)
    if json.loads(json.dumps(opened.facts)) != start["facts"]:
        raise UserError(
            f"the server has changed: it was {start['facts']}, and is now {opened.facts}",
            "run the same command again once it is as before",
        )
    models = opened.models
    harness = Harness(setup.grid, setup.bound, models, relay, timeout=options.timeout)
    harness.started = Started(*start["started"])
    return harness


@contextmanager
def ending_with_input() -> Iterator[None]:
    """End this process when its input ends: nothing has begun, and a server may keep it waiting."""
    begun = threading.Event()

    def watch() -> None:
        ends = select.poll()
        ends.register(0, 0)  # that it has ended is told though jobs are waiting in it
        while not begun.is_set():
            if ends.poll(1000 * WATCH) and not begun.is_set():
                os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        begun.set()


async def work(file: int) -> None:
    """Run jobs until no more can come."""
    # Without a buffer: what follows the first line is for the event loop.
    with open(0, "rb", buffering=0, closefd=False) as plain:
        if not (first := plain.readline()):
            return
    start = json.loads(first)
    relay = Relay(file, Lines(Path(start["calls"])))
    reader = asyncio.StreamReader(limit=LINE)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb", buffering=0)
    )
    running: set[asyncio.Task[None]] = set()
    try:
        with ending_with_input():
            harness = open_harness(start, relay)
        gc.freeze()  # what was loaded stays
        gc.set_threshold(*RARELY)
        while line := await reader.readline():
            *named, known = json.loads(line)
            job = Job(*named)
            relay.known[job.id] = known
            task = asyncio.create_task(_episode(harness, job, relay))
            running.add(task)
            task.add_done_callback(running.discard)
    except Exception as error:
        _complain(relay, error)
    finally:
        for task in running:
            task.cancel()
        relay.flush()


async def _episode(harness: Harness, job: Job, relay: Relay) -> None:
    try:
        await harness.episode(job)
    except Exception as error:  # it ends the evaluation
        _complain(relay, error)


def _complain(relay: Relay, error: Exception) -> None:
    if isinstance(error, UserError):
        relay.say("X", [error.what, error.fix])
    else:
        relay.say("X", ["".join(traceback.format_exception(error))])


def main() -> None:
    """Answer on a copy of the standard output, which is left to what agents print."""
    file = os.dup(1)
    os.dup2(2, 1)
    Stop().run(work(file))


if __name__ == "__main__":
    main()

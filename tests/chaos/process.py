"""Commands as processes of their own that start at once: forked from one that has imported torch.

Each hears signals as a command typed into a terminal does, and what it prints is kept.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.faults import Refusing

CONTEXT = multiprocessing.get_context("forkserver")
PRELOAD = ["recollect.commands.train", "recollect.commands.evaluate", "recollect.commands.data"]
PRELOAD += ["tests.chaos.process", "recollect.commands.stages.run", "recollect.serve.server"]
PRELOAD += ["transformers.models.llama.modeling_llama"]
CONTEXT.set_forkserver_preload(PRELOAD)
LIMIT = 120.0
"""Seconds after which a command hangs."""


@dataclass(frozen=True)
class Disk:
    """What is wrong with the disk of a command; nothing by default."""

    largest: int | None = None
    """Bytes that a file may have: a write ends short, then is refused."""
    full_after: int | None = None
    """Calls to the file system before it is full."""
    lasting: bool = True
    """Whether it stays full."""


@dataclass
class Command:
    """A command under way."""

    process: Any
    started: float
    ready: threading.Event = field(default_factory=threading.Event)
    """Set when signals reach the command, and not what starts it."""
    _printed: list[bytes] = field(default_factory=list)
    _reader: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        return bool(self.process.is_alive())

    @property
    def printed(self) -> str:
        """What it has printed so far."""
        return b"".join(self._printed).decode(errors="replace")

    def send(self, number: int) -> None:
        """Send a signal; one that comes after the end reaches nobody."""
        self.ready.wait(60)
        if self.alive:
            os.kill(self.process.pid, number)

    def wait(self, limit: float = LIMIT) -> tuple[int | None, str]:
        """Return the exit status (negative for a signal, None if it hangs) and what was printed."""
        self.process.join(limit)
        status = self.process.exitcode
        if status is None:
            self.process.kill()
            self.process.join()
        if self._reader:
            self._reader.join(10)
        return status, self.printed


def start(arguments: list[str], scratch: Path, disk: Disk = Disk()) -> Command:
    """Start `recollect ARGUMENTS`."""
    pipe = scratch / f"printed-{time.monotonic_ns()}"
    os.mkfifo(pipe)
    process = CONTEXT.Process(target=_run, args=(arguments, str(pipe), disk), daemon=True)
    process.start()
    command = Command(process, time.monotonic())
    command._reader = threading.Thread(target=_read, args=(pipe, command), daemon=True)
    command._reader.start()
    return command


def warm_up(scratch: Path) -> None:
    """Let the process that all commands are forked from import what they need."""
    start(["--help"], scratch).wait()


def _read(pipe: Path, command: Command) -> None:
    with open(pipe, "rb", buffering=0) as file:
        pipe.unlink()
        command.ready.set()
        while block := file.read(1 << 16):
            command._printed.append(block)


def _run(arguments: list[str], pipe: str, disk: Disk) -> None:
    """Be the command: the same `main` as `recollect`, with its own output and a disk's faults."""
    gc.freeze()  # it need not look through what it was forked with
    stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    end = os.open(pipe, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(end, number)
    os.close(end)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    from recollect.__main__ import main

    sys.argv = ["recollect", *arguments]
    if disk.largest is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (disk.largest, resource.RLIM_INFINITY))
    refusing = Refusing(disk.full_after or 0, lasting=disk.lasting)
    with refusing() if disk.full_after else nullcontext():
        status = _unblocked(main, stops)
    sys.stdout.flush()
    sys.exit(status)


def _unblocked(main: Callable[[], int], stops: tuple[int, ...]) -> int:
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stops)
        return main()
    except KeyboardInterrupt:  # before the first line of `main`
        return 130


def wait_until(happened: Callable[[], object], limit: float, command: Command) -> bool:
    """Wait until something has happened; False if the command ended or time is over."""
    deadline = time.monotonic() + limit
    while not happened():
        if not command.alive or time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True

"""Starts `recollect` in processes of their own that need not import torch again.

A process beside the tests imports what training needs, once; each start is a fork of it, with its
own signals, output and exit. Forks of one such process share Python's hash seed: a test that
compares runs makes one of them with `cold`, which starts Python from nothing.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _environment() -> dict[str, str]:
    """Return the tests' own; with one thread, since sums depend on how many there are."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}


def hear_signals() -> None:
    """Undo what a shell does to background processes, which the tests may be."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def cold(command: Sequence[str]) -> subprocess.Popen[str]:
    """Start `recollect` as a shell does."""
    pipe = subprocess.PIPE
    words = [sys.executable, "-m", "recollect", *command]
    return subprocess.Popen(
        words, stdout=pipe, stderr=pipe, text=True, env=_environment(), preexec_fn=hear_signals
    )


class Warm:
    """A started `recollect`; what tests need of `subprocess.Popen`."""

    def __init__(self, command: Sequence[str]) -> None:
        self.out, self.err = (Path(tempfile.mkstemp(prefix="warm-")[1]) for _ in range(2))
        request = {"command": list(command), "cwd": os.getcwd(), "env": _environment()}
        self.pid = _ask({**request, "out": str(self.out), "err": str(self.err)})
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it ended; None while it runs."""
        if self.returncode is None:
            self.returncode = _ask({"poll": self.pid})
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = 280) -> tuple[str, str]:
        """Wait for its end; return what it printed."""
        ends = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > ends:
                raise subprocess.TimeoutExpired("recollect", timeout)
            time.sleep(0.002)
        found = self.out.read_text("utf-8"), self.err.read_text("utf-8")
        self.out.unlink()
        self.err.unlink()
        return found


def _ask(request: dict[str, object]) -> int | None:
    server = _server()
    assert server.stdin and server.stdout
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())


@cache
def _server() -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "tests.support.warm"]
    server = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=_environment())
    atexit.register(server.kill)
    return server


def _serve() -> int:
    """Fork for every command that comes, and say how forks ended."""
    import transformers.models.auto.modeling_auto
    import transformers.models.llama.modeling_llama  # noqa: F401

    import recollect.commands.stages.run
    import recollect.commands.train  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if not answer:
                return _run(request)
        print(json.dumps(answer), flush=True)
    return 0


def _run(request: dict[str, object]) -> int:
    """Be the command: nothing of the server's is left but what it has imported."""
    from recollect.__main__ import main

    hear_signals()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as Python does when it starts
    for path, number in (("/dev/null", 0), (request["out"], 1), (request["err"], 2)):
        os.dup2(os.open(str(path), os.O_RDWR), number)
    sys.stdin = open(0)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["env"])  # type: ignore[call-overload]
    os.chdir(str(request["cwd"]))
    sys.argv = ["recollect", *request["command"]]  # type: ignore[misc]
    return main()


if __name__ == "__main__":
    sys.exit(_serve())

"""Starts `recollect` in processes of their own that need not import torch again.

A process beside the tests imports what commands need, once for all that run them; each start is a
fork of it, with its own signals, output and exit. So is a server that such a command starts. Forks
of one such process share Python's hash seed: a test that compares runs makes one of them `apart`, a
fork of another process with another seed, or with `cold`, which starts Python from nothing.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import IO, Any, NoReturn

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


def _wait(poll: Callable[[], int | None], timeout: float) -> int:
    ends = time.monotonic() + timeout
    while (status := poll()) is None:
        if time.monotonic() > ends:
            raise subprocess.TimeoutExpired("recollect", timeout)
        time.sleep(0.002)
    return status


class Warm:
    """A started `recollect`, another module or a script; what tests need of `subprocess.Popen`."""

    def __init__(
        self,
        command: Sequence[str],
        module: str = "recollect",
        log: Path | None = None,
        cwd: Path | None = None,
        stdin: Path = Path(os.devnull),
        apart: bool = False,
        **environment: str,
    ) -> None:
        self._log, self._apart = log, apart
        self.out, self.err = (
            log or Path(tempfile.mkstemp(prefix="warm-")[1]) for _ in ("out", "err")
        )
        files = [str(stdin), str(self.out), str(self.err)]
        place = {"cwd": str(cwd or Path.cwd()), "env": _environment() | environment}
        what = {"command": list(command), "module": module, "files": files, **place}
        self.pid = _ask(what, apart) or 0
        self._end = os.pidfd_open(self.pid)  # readable once it has ended
        self.returncode: int | None = None

    def poll(self, timeout: float = 0) -> int | None:
        """Return how it ended; None while it runs."""
        if self.returncode is None and select.select([self._end], [], [], timeout)[0]:
            self.returncode = _ask({"status": self.pid}, self._apart)
            os.close(self._end)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float = 280) -> int:
        """Wait for its end; return its status."""
        if (status := self.poll(timeout)) is None:
            raise subprocess.TimeoutExpired("recollect", timeout)
        return status

    def communicate(self, timeout: float = 280) -> tuple[str, str]:
        """Wait for its end; return what it printed, unless that is in a log."""
        self.wait(timeout)
        found = self.out.read_text("utf-8"), self.err.read_text("utf-8")
        if not self._log:
            self.out.unlink()
            self.err.unlink()
        return found


def _ask(request: dict[str, object], apart: bool) -> int | None:
    server, ends = _server(apart), time.monotonic() + 120
    with socket.socket(socket.AF_UNIX) as asking:
        while asking.connect_ex(_address(_owner(), apart)):
            assert not server.poll() and time.monotonic() < ends, "no process beside the tests"
            time.sleep(0.01)
        with asking.makefile("rw") as line:
            line.write(json.dumps(request) + "\n")
            line.flush()
            return json.loads(line.readline())


def _owner() -> int:
    """Return the process with which the one beside the tests ends: that of all workers."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


def _address(owner: int, apart: bool) -> str:
    """Return a name without a file; two processes cannot both have it."""
    return f"\0recollect-warm-{owner}-{apart:d}"


@cache
def _server(apart: bool) -> subprocess.Popen[bytes]:
    """Start the process beside the tests; it ends at once if another worker has started it."""
    command = [sys.executable, "-m", "tests.support.warm", str(_owner()), f"{apart:d}"]
    seed = {"PYTHONHASHSEED": "random" if not apart else "7"}
    null = subprocess.DEVNULL
    started = subprocess.Popen(command, stdin=null, stdout=null, env=_environment() | seed)
    Thread(target=started.wait, daemon=True).start()  # one that comes second leaves no zombie
    return started


def _serve() -> int:
    """Fork for every command that comes, and say how forks ended."""
    owner, apart = map(int, sys.argv[1:])
    ended, asked = os.pidfd_open(owner), socket.socket(socket.AF_UNIX)
    try:
        asked.bind(_address(owner, bool(apart)))
    except OSError:
        return 0  # another worker was first
    asked.listen(64)
    gc.disable()  # all that is imported stays
    import torch
    import transformers.models.llama.modeling_llama  # noqa: F401
    from transformers import AutoModelForCausalLM

    import recollect.commands.evaluate
    import recollect.commands.stages.run
    import recollect.commands.train
    import recollect.endpoint.start
    import recollect.serve.server  # noqa: F401
    from recollect.commands.arguments import read_config
    from recollect.config.presets import DEMO_MODEL

    torch.backends.mkldnn.enabled = False  # as in tests/conftest.py
    # What the first model and the first command line leave in the caches of libraries.
    AutoModelForCausalLM.from_pretrained(DEMO_MODEL)
    read_config(["demo"], "train", "demo")
    gc.freeze()  # forks need not look through it
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
    imported = frozenset(sys.modules)
    while ended not in select.select([asked, ended], [], [])[0]:
        asking = asked.accept()[0]
        with asking, asking.makefile("rw") as line:
            request = json.loads(line.readline())
            if "status" in request:
                answer = os.waitstatus_to_exitcode(os.waitpid(request["status"], 0)[1])
            else:
                answer = os.fork()
                if not answer:
                    for descriptor in (asking.detach(), asked.detach(), ended):
                        os.close(descriptor)
                    _leave(_status_of(request), imported)
            line.write(json.dumps(answer) + "\n")
    return 0


def _status_of(request: dict[str, Any]) -> int:
    """Be the command; return its exit status, unless it ends with an error that Python shows."""
    try:
        return _run(request)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise
        return ended.code or 0


def _run(request: dict[str, Any]) -> int:
    """Run what is asked for: nothing of the server's is left but what it has imported."""
    from recollect.__main__ import main
    from recollect.commands.stages import server

    _begin([os.open(path, os.O_RDWR | os.O_APPEND) for path in request["files"]], request["env"])
    os.chdir(request["cwd"])
    server.subprocess = SimpleNamespace(**vars(subprocess) | {"Popen": Forked})  # type: ignore[assignment]
    sys.argv = [request["module"], *request["command"]]
    if request["module"] == "recollect":
        return main()
    if (script := Path(request["module"])).suffix == ".py":
        sys.path.insert(0, str(script.parent))
        runpy.run_path(str(script), run_name="__main__")
        return 0
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    return 0


def _leave(status: int, imported: frozenset[str]) -> NoReturn:
    """End as Python does: wait for threads, clean up, free what the command has made or imported.

    Only what the server has imported is not taken apart: that takes longer than most commands.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for name in set(sys.modules) - imported:
        del sys.modules[name]
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # None, where the command's own code has taken it away
            stream.flush()
    os._exit(status)


def _begin(files: Sequence[int], environment: Mapping[str, str]) -> None:
    """Begin as a process that a shell has just started."""
    hear_signals()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as Python does when it starts
    signal.set_wakeup_fd(-1)
    for number, file in enumerate(files):
        os.dup2(file, number)
    sys.stdin = open(0)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)


class Forked:
    """A server of a command: forked from it, where `subprocess.Popen` would start Python anew."""

    def __init__(
        self,
        args: Sequence[str],
        stdin: int,
        stdout: IO[bytes],
        stderr: int,
        env: Mapping[str, str],
        pass_fds: Sequence[int],
        start_new_session: bool,
    ) -> None:
        assert start_new_session and (stdin, stderr) == (subprocess.DEVNULL, subprocess.STDOUT)
        self.returncode: int | None = None
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            _be_child(args, stdout.fileno(), env, pass_fds)

    def poll(self) -> int | None:
        """Return how it ended; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float = 280) -> int:
        """Wait for its end; return its status."""
        return _wait(self.poll, timeout)

    def terminate(self, number: int = signal.SIGTERM) -> None:
        """Ask it to end, unless it has."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.terminate(signal.SIGKILL)


def _be_child(
    args: Sequence[str], log: int, environment: Mapping[str, str], kept: Sequence[int]
) -> NoReturn:
    """Be the Python that `args` starts; the caller's stack below is never returned to."""
    status: Any = 1
    try:
        os.setsid()
        _begin([os.open(os.devnull, os.O_RDWR), log, log], environment)
        last = max(int(fd) for fd in os.listdir("/proc/self/fd"))
        for fd in set(range(3, last + 1)) - set(kept):
            with suppress(OSError):
                os.close(fd)
        _python, _safe, _m, module, *sys.argv[1:] = args
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)


if __name__ == "__main__":
    sys.exit(_serve())

"""The warm process: import, then become what clients ask for, in a fork for each.

    python -P -m recollect.engines.verl.warm.server LISTENING INTERPRETER MODULE [MODULE ...]

LISTENING is the descriptor of a socket, INTERPRETER what leads clients to it: what a fork starts
through multiprocessing becomes a fork as well. The process ends with its standard input, and its
forks end with it. It must not import Ray, whose forks would all draw the same identifiers.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import json
import multiprocessing
import os
import random
import resource
import select
import shutil
import signal
import socket
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from recollect.engines.verl.warm.client import FORWARDED, MOST, NOT_FORKED
from recollect.engines.verl.warm.job import Job, job_of
from recollect.foreign import shown

LOW = 512
"""Descriptors below are for what clients hand over, which keeps its numbers; ours are above."""
NOT_INITIALIZED = 3
"""What CUDA's driver says before anything has used it."""
PR_SET_PDEATHSIG = 1
ENVIRONMENT = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""To ask whether there is a GPU must not use it: a fork could not use it any more."""


def main() -> Job | None:
    """Import and serve; in a fork, return what it is to do."""
    listening, interpreter, *modules = sys.argv[1:]
    multiprocessing.set_executable(interpreter)
    listener = socket.socket(fileno=lifted(int(listening)))
    own, job = os.getpid(), None
    try:
        job = Server(listener, brought(modules)).serve()
    finally:
        if os.getpid() == own:  # the command may have been killed
            shutil.rmtree(Path(interpreter).parent, ignore_errors=True)
    return job


def brought(modules: Sequence[str]) -> Begun:
    """Import what there is of some modules; return the environment before and after."""
    nowhere = lifted(os.open(os.devnull, os.O_RDWR))
    for number in range(3, LOW):  # what is imported opens files of its own, which stay
        os.dup2(nowhere, number, inheritable=False)
    os.close(nowhere)
    before = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
    for name in modules:
        with suppress(ImportError):  # whoever needs it will say so
            importlib.import_module(name)
    if not can_be_forked():
        sys.exit("recollect: what was imported cannot be forked: processes are started one by one")
    gc.collect()
    gc.freeze()  # none of it is garbage, and unmarked it stays shared
    os.closerange(3, LOW)
    made = {name: value for name, value in os.environ.items() if before.get(name) != value}
    return Begun(before, made)


@dataclass(frozen=True)
class Begun:
    """The environment in which modules were imported."""

    before: dict[str, str]
    made: dict[str, str]
    """What they have set in it."""

    def fits(self, environment: dict[str, str]) -> bool:
        """Tell whether an interpreter that begins in an environment would be like this one."""
        names = {n for n in {*self.before, *environment} if n.startswith("PYTHON")}
        return all(self.before.get(n) == environment.get(n) for n in names - {"PYTHONPATH"})

    def within(self, environment: dict[str, str]) -> dict[str, str]:
        """Return an environment as the modules would leave it, had they been imported there."""
        kept = {
            n: v for n, v in environment.items() if n not in self.made or v != self.before.get(n)
        }
        return self.made | kept


def can_be_forked() -> bool:
    """Tell whether forks of this process are as good as new ones."""
    return not gpu_is_touched() and "ray" not in sys.modules


def gpu_is_touched() -> bool:
    """Tell whether CUDA's driver has been used, after which no fork can use it."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:  # nobody has loaded it
        return False
    return int(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))) != NOT_INITIALIZED


def lifted(number: int) -> int:
    """Move a descriptor out of the way."""
    higher = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, LOW)
    os.close(number)
    return higher


class Server:
    """Fork for every client, tell it how its process ended, and end that with it."""

    def __init__(self, listening: socket.socket, begun: Begun) -> None:
        self._listening = listening
        self._begun = begun
        self._clients: dict[int, socket.socket] = {}
        """By the process that each has become."""
        self._woken, self._waking = map(lifted, os.pipe2(os.O_NONBLOCK))

    def serve(self) -> Job | None:
        """Answer until standard input ends; in a fork, return what it is to do."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)
        while True:
            poll = select.poll()
            sockets = (self._listening, *self._clients.values())
            for number in (0, self._woken, *(each.fileno() for each in sockets)):
                poll.register(number, select.POLLIN)
            ready = {number for number, _ in poll.poll()}
            if 0 in ready:
                return None
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._bury()
            for pid, client in list(self._clients.items()):
                if client.fileno() in ready:
                    self._pass_on(pid, client)
            if self._listening.fileno() in ready and (job := self._answer()):
                return job

    def _answer(self) -> Job | None:
        files: list[int] = []
        pid: int | None = None
        client: socket.socket | None = None
        answer = b""
        try:
            client = socket.socket(fileno=lifted(self._listening.accept()[0].detach()))
            given = receive(client, files)
            job, environment = job_of(given["arguments"]), given["environment"]
            low = max(given["files"], default=0) < LOW
            if job is None or not low or not self._begun.fits(environment):
                client.close()  # it becomes an interpreter of its own
                return None
            given |= {"environment": self._begun.within(environment), "parent": os.getpid()}
            client.send(b"y")  # one that has given up is not there to be told
            answer = NOT_FORKED
            if (pid := fork()) == 0:
                return partial(self._become, job, client, files, given)
            with suppress(OSError):  # both do, as either may be first; or it has ended
                os.setpgid(pid, pid)
            self._clients[pid] = client
        except Exception as error:  # of one client: the others' processes must not end for it
            if client:
                with suppress(OSError), client:
                    client.sendall(answer)
            with suppress(OSError):
                print(shown(f"recollect: a process was not forked: {error!r}"), file=sys.stderr)
        finally:
            for file in files if pid != 0 else ():
                os.close(file)
        return None

    def _become(
        self, job: Job, client: socket.socket, files: list[int], given: dict[str, Any]
    ) -> None:
        """Do in a fork what a client wants."""
        self._let_go()
        client.close()
        settle(files, given)
        job()

    def _let_go(self) -> None:
        """Close in a fork what is this process's."""
        signal.set_wakeup_fd(-1)
        for number in (self._woken, self._waking):
            os.close(number)
        for each in (self._listening, *self._clients.values()):
            each.close()

    def _bury(self) -> None:
        """Tell the clients of processes that have ended."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if client := self._clients.pop(ended[0], None):
                    with suppress(OSError):
                        client.send(ended[1].to_bytes(4, "big"))
                    client.close()

    def _pass_on(self, pid: int, client: socket.socket) -> None:
        """Send a process the signals that its client got; kill all it started if that is gone."""
        try:
            numbers = client.recv(16)
        except OSError:
            numbers = b""
        for number in numbers:
            os.kill(pid, number)
        if not numbers:
            self._clients.pop(pid).close()
            with suppress(ProcessLookupError):  # it has joined another group
                os.killpg(pid, signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)


def receive(client: socket.socket, files: list[int]) -> dict[str, Any]:
    """Read what a client hands over; its files are added, with high numbers of ours."""
    client.settimeout(10)
    head, low, _, _ = socket.recv_fds(client, 8, MOST)
    files += [lifted(number) for number in low]
    text = bytearray()
    while not text or len(text) < int.from_bytes(head, "big"):
        part = client.recv(1 << 16)
        if not part:
            raise ConnectionError("the client is gone")
        text += part
    client.settimeout(None)
    given: dict[str, Any] = json.loads(text)
    return given


def fork() -> int:
    """Fork, though libraries may have threads: theirs wait for work, and hold nothing."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def settle(files: list[int], given: dict[str, Any]) -> None:
    """Make this fork what an interpreter that was started there would be."""
    # Ray ends a worker's process group with it, and the warm process must not be in that.
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != given["parent"]:
        os._exit(1)  # it ended in between
    for number in (*FORWARDED, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in given["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    os.close(nowhere)
    for file, number in zip(files, given["files"], strict=True):
        os.dup2(file, number)
        os.close(file)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(given["environment"])
    time.tzset()
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = [path for path in paths if path not in sys.path]
    os.chdir(given["folder"])
    os.umask(given["umask"])
    resource.setrlimit(resource.RLIMIT_NOFILE, given["most_files"])
    with suppress(OSError):  # more may be allowed to a client than to this process
        os.sched_setaffinity(0, given["cores"])
        os.setpriority(os.PRIO_PROCESS, 0, given["nice"])
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()


if __name__ == "__main__":
    job = main()
    if job is not None:
        job()

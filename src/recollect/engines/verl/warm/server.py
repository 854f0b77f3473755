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
import select
import shutil
import signal
import socket
import sys
import warnings
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from recollect.engines.verl.warm.client import FORWARDED, MOST
from recollect.engines.verl.warm.job import Job, job_of

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
    server = Server(socket.socket(fileno=lifted(int(listening))))
    nowhere = lifted(os.open(os.devnull, os.O_RDWR))
    for number in range(3, LOW):  # what is imported opens files of its own, which stay
        os.dup2(nowhere, number, inheritable=False)
    for name in modules:
        with suppress(ImportError):  # whoever needs it will say so
            importlib.import_module(name)
    if not can_be_forked():
        sys.exit("recollect: what was imported cannot be forked: processes are started one by one")
    gc.collect()
    gc.freeze()  # none of it is garbage, and unmarked it stays shared
    os.closerange(3, LOW)
    job = server.serve()
    if job is None:  # the command was killed, and has cleaned nothing up
        shutil.rmtree(Path(interpreter).parent, ignore_errors=True)
    return job


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

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._clients: dict[int, socket.socket] = {}
        """By the process that each has become."""
        self._woken, self._waking = map(lifted, os.pipe2(os.O_NONBLOCK))

    def serve(self) -> Job | None:
        """Answer until standard input ends; in a fork, return what it is to do."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        os.set_blocking(self._waking, False)
        signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)
        while True:
            asked: list[Any] = [0, self._woken, self._listening, *self._clients.values()]
            ready = select.select(asked, [], [])[0]
            if 0 in ready:
                return None
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._bury()
            for pid, client in list(self._clients.items()):
                if client in ready:
                    self._pass_on(pid, client)
            if self._listening in ready:
                client = socket.socket(fileno=lifted(self._listening.accept()[0].detach()))
                if job := self._answer(client):
                    return job

    def _answer(self, client: socket.socket) -> Job | None:
        files: list[int] = []
        pid: int | None = None
        try:
            given = receive(client, files)
            job = job_of(given["arguments"])
            if job is None or max(given["files"], default=0) >= LOW:
                client.close()  # it becomes an interpreter of its own
                return None
            if (pid := fork()) == 0:
                return partial(self._become, job, client, files, given)
            self._clients[pid] = client
            client.send(b"y")
        except OSError:  # it was killed while it asked; if it has become a process, so is that
            pass
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
        """Send a process the signals that its client got; kill it if that is gone."""
        try:
            numbers = client.recv(16)
        except OSError:
            numbers = b""
        if not numbers:
            self._clients.pop(pid).close()
        for number in numbers or [signal.SIGKILL]:
            os.kill(pid, number)


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
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (*FORWARDED, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
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
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = [path for path in paths if path not in sys.path]
    os.chdir(given["folder"])
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()


if __name__ == "__main__":
    job = main()
    if job is not None:
        job()

"""In the place of an interpreter: let the warm process become what was to be run, and wait for it.

    python -IS client.py SOCKET [what an interpreter takes]

Where nobody answers, this becomes the interpreter that was meant. Started for every process of a
run, it knows nothing but the standard library.
"""

import array
import fcntl
import json
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
MOST = 200
"""Files that are handed on; a message takes no more than 253."""

NOT_FORKED = b"\xff" * 4
"""The answer, in the place of a status, where there was no room for another process."""
PATIENCE = 45.0
"""Seconds in which the warm process may still be importing; Ray waits for 60."""


def main() -> None:
    """Ask, pass signals on, and end as the process ends."""
    arguments = sys.argv[2:]
    connection = ask(sys.argv[1], arguments)
    if connection is None:
        become(arguments)

    def forward(number: int, _frame: FrameType | None) -> None:
        with suppress(OSError):  # it has just ended
            connection.send(bytes([number]))

    for each in FORWARDED:
        signal.signal(each, forward)
    said = b""
    with suppress(OSError):
        said = connection.recv(4)
    if said == NOT_FORKED:
        become(arguments)
    # Where the warm process is gone, so is what it has become.
    status = int.from_bytes(said, "big") if said else int(signal.SIGKILL)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(128 + number)  # it is blocked here
    os._exit(os.WEXITSTATUS(status))


def become(arguments: list[str]) -> NoReturn:
    """Become the interpreter that was meant."""
    os.execv(sys.executable, [sys.executable, *arguments])


def ask(path: str, arguments: list[str]) -> socket.socket | None:
    """Hand over all that a process begins with; return the connection, if it is taken."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE)
    try:
        files = open_files()
        mask = os.umask(0)
        os.umask(mask)
        given = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd(),
                 "files": files, "umask": mask,
                 "ignored": [n for n in signal.valid_signals() if is_ignored(n)],
                 "nice": os.getpriority(os.PRIO_PROCESS, 0),
                 "cores": sorted(os.sched_getaffinity(0)),
                 "most_files": resource.getrlimit(resource.RLIMIT_NOFILE)}  # fmt: skip
        text = json.dumps(given).encode()
        if len(files) <= MOST:
            connection.connect(path)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))
            connection.sendmsg([len(text).to_bytes(8, "big")], [rights])
            connection.sendall(text)
            if connection.recv(1):
                connection.settimeout(None)
                return connection
    except OSError:  # it has ended, or was never there, or is too slow
        pass
    connection.close()
    return None


def is_ignored(number: int) -> bool:
    """Tell whether whatever is started here ignores a signal, as in the background of a shell."""
    return signal.getsignal(number) is signal.SIG_IGN


def open_files() -> list[int]:
    """Return the descriptors that whatever is started here inherits."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if not fcntl.fcntl(number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                found.append(number)
        except OSError:  # that of the list itself
            continue
    return sorted(found)


if __name__ == "__main__":
    main()

"""Run a module as a child that ends with its parent, however the parent ends.

    python -m recollect.runs.child FD MODULE ...

FD is the reading end of a pipe that only the parent can write to. Nothing is ever written: when
the parent is gone, killed or not, the system closes the pipe, and the child sees its end.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading


def follow(fd: int) -> None:
    """End this process as soon as the other end of the pipe is closed."""
    os.read(fd, 1)
    if os.getpgrp() == os.getpid():  # the group is ours: servers have children of their own
        os.killpg(0, signal.SIGKILL)
    os._exit(1)  # nobody is left who would wait for a tidy end


if __name__ == "__main__":
    fd = int(sys.argv.pop(1))
    threading.Thread(target=follow, args=(fd,), daemon=True).start()
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)

"""Run a verb of the command line as a child that ends with its parent, however the parent ends.

    python -m recollect.stages.tether FD VERB ...

FD is the reading end of a pipe that only the parent can write to. Nothing is ever written: when
the parent is gone, killed or not, the system closes the pipe, and the child sees its end.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading


def follow(fd: int) -> None:
    """End this process as soon as the other end of the pipe is closed."""
    os.read(fd, 1)
    os._exit(1)  # nobody is left who would wait for a tidy end


if __name__ == "__main__":
    fd = int(sys.argv.pop(1))
    threading.Thread(target=follow, args=(fd,), daemon=True).start()
    runpy.run_module("recollect.cli", run_name="__main__", alter_sys=True)

"""The end of a process that has used Ray."""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """End this process now, with what Python does at its end and without what libraries do.

    Threads of Ray outlive `ray.shutdown`. They may touch what is being taken down, and a process
    whose work is done would end with a segmentation fault instead of its status.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)

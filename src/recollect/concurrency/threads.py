"""How long a thread may keep Python's interpreter while another one waits for it."""

from __future__ import annotations

import sys

INTERVAL = 0.0001
"""Seconds; Python's own are 0.005."""


def share_interpreter() -> None:
    """Let threads that compute get the interpreter back soon, in this process from now on.

    Torch gives it away with every operation. Beside a thread that always has work, each of the
    hundreds of operations of a forward pass would wait for Python's whole interval
    (benchmarks/busy_agents.py).
    """
    sys.setswitchinterval(min(INTERVAL, sys.getswitchinterval()))

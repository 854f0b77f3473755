"""A process that has used Ray ends with its status, whatever native threads would do."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import atexit, threading, time
from recollect.engines.verl.leave import leave

atexit.register(print, "at the end", end="")
threading.Thread(target=time.sleep, args=(60,)).start()  # a plain exit would wait for it
print("done", end=" ")
leave(3)
"""


def test_the_status_and_all_that_was_printed_come_through():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=30)
    assert done.returncode == 3
    assert done.stdout == "done at the end"

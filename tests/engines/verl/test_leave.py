"""A process that has used Ray ends with its status, whatever threads are still there."""

from __future__ import annotations

import subprocess
import sys

LINGER = "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()\n"
"""A plain exit would wait for it."""


def ended(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, which must end long before its thread does."""
    command = [sys.executable, "-c", LINGER + code, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_the_status_and_all_that_was_printed_come_through():
    done = ended("""
import atexit
from recollect.engines.verl.leave import leave

atexit.register(print, "at the end", end="")
print("done", end=" ")
leave(3)
""")
    assert (done.returncode, done.stdout) == (3, "done at the end")


def test_a_run_on_a_cluster_ends_so():
    code = """
import runpy, sys, types
from recollect.errors import UserError

def run():
    if sys.argv[1:]:
        raise UserError("no", "do")

sys.modules["recollect.engines.verl.runner"] = types.SimpleNamespace(run=run)
runpy.run_module("recollect.engines.verl.main", run_name="__main__")
"""
    assert ended(code).returncode == 0
    wrong = ended(code, "wrong")
    assert wrong.returncode == 2 and wrong.stderr.startswith("recollect: no")


def test_who_asked_the_nodes_ends_so(tmp_path):
    done = ended(
        """
import runpy
from recollect.engines.verl.doctor import workers

workers.ask = lambda address, modules: [workers.Node(str(address), "3.12", {})]
runpy.run_module("recollect.engines.verl.doctor.nodes", run_name="__main__")
""",
        str(tmp_path / "nodes.json"),
        "here:1",
    )
    assert done.returncode == 0, done.stderr
    assert '"host": "here:1"' in (tmp_path / "nodes.json").read_text()

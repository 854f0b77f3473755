"""A really started `recollect serve` with an agent before the model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Started:
    """A server's process and its address."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def started(folder: Path, *args: str, agent: str = "fold", **environment: str) -> Iterator[Started]:
    """Serve until the block ends."""
    ready, log = folder / "ready", folder / "log"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "recollect.cli", "serve", *args, "--agent", agent]
    command += ["--port", "0", "--ready-file", str(ready), "--memories", str(folder / "memories")]
    with open(log, "ab") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, **environment}, cwd=folder
        )
    try:
        end = time.monotonic() + 60
        while not ready.exists():
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.01)
        yield Started(process, ready.read_text().strip(), log)
    finally:
        process.kill()
        process.wait()

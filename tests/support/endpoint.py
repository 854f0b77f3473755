"""A really started `recollect serve` with an agent before the model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.warm import Warm


@dataclass
class Started:
    """A server's process and its address."""

    process: Warm
    url: str
    log: Path

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()


@contextmanager
def started(folder: Path, *args: str, agent: str = "fold", **environment: str) -> Iterator[Started]:
    """Serve until the block ends."""
    ready, log = folder / "ready", folder / "log"
    ready.unlink(missing_ok=True)
    command = ["serve", *args, "--agent", agent, "--port", "0", "--ready-file", str(ready)]
    command += ["--memories", str(folder / "memories")]
    log.touch()
    process = Warm(command, log=log, cwd=folder, **environment)
    try:
        end = time.monotonic() + 60
        while not ready.exists():
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.01)
        yield Started(process, ready.read_text().strip(), log)
    finally:
        process.kill()
        process.wait()

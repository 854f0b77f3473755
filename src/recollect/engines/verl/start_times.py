"""When a run on the cluster reached which part of its start: a line in its folder for each.

The parts happen in different processes, on any node; all of them see the folder. verl says in its
log when its own parts are done, and that is where they are read. Knows nothing of Ray.
"""

from __future__ import annotations

import itertools
import json
import logging
import time
from pathlib import Path

NAME = "start.jsonl"
VERL = "verl.trainer.ppo.v1.trainer_base"
"""The logger that says so."""
SAID = {
    "create worker group": "the actor's process",
    "actor and ref model engine initialized": "the actor's model",
    "reward loop manager initialized": "the reward's process",
    "checkpoint engine manager initialized": "the sampler",
}
"""What verl says at the end of a part, and what we call the part."""


def begin(run: Path, at: float | None = None) -> None:
    """Start anew, now or at an earlier time."""
    (run / NAME).write_text("")
    _write(run, "", time.time() if at is None else at)


def mark(run: Path, part: str) -> None:
    """Write that a part of the start is done."""
    _write(run, part, time.time())


def _write(run: Path, part: str, at: float) -> None:
    with (run / NAME).open("a") as file:
        file.write(json.dumps({"part": part, "at": round(at, 3)}) + "\n")


def read_parts(run: Path) -> list[tuple[str, float]]:
    """Return the parts in their order, each with the seconds it took."""
    path = run / NAME
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [(now["part"], now["at"] - before["at"]) for before, now in itertools.pairwise(lines)]


def describe(run: Path) -> str:
    """Say in one line how long the start took, and which part how long."""
    parts = read_parts(run)
    each = ", ".join(f"{part} {seconds:.1f}" for part, seconds in parts)
    return f"{sum(s for _, s in parts):.1f} s from the command to the first rollout: {each}"


class Listener(logging.Handler):
    """Mark the parts that verl says it has done."""

    def __init__(self, run: Path) -> None:
        super().__init__(logging.INFO)
        self.run = run

    def emit(self, record: logging.LogRecord) -> None:
        """Write the part that a message ends, if it ends one."""
        said = record.getMessage()
        for beginning, part in SAID.items():
            if said.startswith(beginning):
                mark(self.run, part)


def listen(run: Path) -> None:
    """Hear what verl says from now on in this process."""
    logging.getLogger(VERL).addHandler(Listener(run))

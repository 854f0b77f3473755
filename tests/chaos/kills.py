"""Signals at random moments, and the same command again: it must end as if nothing had happened."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

from tests.chaos.invariants import Findings, bad_manners, compare
from tests.chaos.process import Disk, start, wait_until
from tests.chaos.workloads import Unit, Workload

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def kill_and_resume(
    workload: Workload,
    folder: Path,
    whole: list[Unit],
    seconds: float,
    draw: random.Random,
    signals: tuple[int, ...] = SIGNALS,
    most: int = 3,
) -> tuple[Findings, list[float]]:
    """Disturb a command up to `most` times within `seconds` each, then let it end.

    Return what is wrong, and the seconds from each restart to the first new result.
    """
    said: list[str] = []
    recovered: list[float] = []
    for _ in range(draw.randint(1, most)):
        number = draw.choice(signals)
        command = start(workload.arguments(folder), folder.parent)
        time.sleep(draw.uniform(0, seconds))
        command.send(number)
        if number != signal.SIGKILL and draw.random() < 0.3:  # an impatient person, or a cluster
            time.sleep(draw.uniform(0, 0.05))
            command.send(draw.choice([number, signal.SIGKILL]))
        said += bad_manners(*command.wait(), allowed={0, -signal.SIGKILL, 128 + number, -number})
        recovered += resume(workload, folder)
    return end(workload, folder, whole, said), recovered


def resume(workload: Workload, folder: Path) -> list[float]:
    """Start again, wait for the first new result, and kill it there."""
    grown = folder / workload.progress
    before = _size(grown)
    command = start(workload.arguments(folder), folder.parent)
    if wait_until(lambda: _size(grown) > before, 60, command):
        took = [time.monotonic() - command.started]
    else:
        took = []  # it had nothing left to do
    command.send(signal.SIGKILL)
    command.wait()
    return took


def end(workload: Workload, folder: Path, whole: list[Unit], said: list[str]) -> Findings:
    """Let the command end, and compare."""
    command = start(workload.arguments(folder), folder.parent, Disk())
    said = said + bad_manners(*command.wait(), allowed={0})
    return compare(workload, folder, whole, said)


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(1 for _ in path.iterdir())
    return path.stat().st_size if path.exists() else 0

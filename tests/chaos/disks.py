"""Disks that fill up in the middle of a command, by size or by call, and have room again later."""

from __future__ import annotations

import random
import time
from pathlib import Path

from tests.chaos.invariants import Findings, bad_manners
from tests.chaos.kills import end
from tests.chaos.process import Disk, start
from tests.chaos.workloads import Unit, Workload


def fill_and_resume(
    workload: Workload, folder: Path, whole: list[Unit], largest: int, draw: random.Random
) -> tuple[Findings, list[float]]:
    """Run on a full disk up to three times, then with room. `largest` is the largest file's size.

    A full disk is one message and status 2, or nothing if the command needed no more room.
    """
    said: list[str] = []
    took: list[float] = []
    for _ in range(draw.randint(1, 3)):
        disk = random_disk(largest, draw)
        command = start(workload.arguments(folder), folder.parent, disk)
        status, printed = command.wait()
        said += bad_manners(status, printed, allowed={0, 2})
        if status == 2 and "cannot write" not in printed and "cannot create" not in printed:
            said.append(f"a full disk is not named: {printed[-300:]!r}")
        took.append(time.monotonic() - command.started)
    return end(workload, folder, whole, said), took


def random_disk(largest: int, draw: random.Random) -> Disk:
    """Fill a disk by size, spread over orders of magnitude, or at a random call."""
    if draw.random() < 0.5:
        return Disk(largest=int(10 ** draw.uniform(0, len(str(largest)) - 0.5)))
    return Disk(full_after=draw.randint(1, 150), lasting=draw.random() < 0.7)

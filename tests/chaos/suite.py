"""All faults in turn until time is over: what was tried, what it cost, what went wrong."""

from __future__ import annotations

import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cached_property
from itertools import cycle
from pathlib import Path
from typing import Self

from tests.chaos import grounds, workloads
from tests.chaos.damage import Ground, damage
from tests.chaos.disks import fill_and_resume
from tests.chaos.invariants import Findings
from tests.chaos.kills import kill_and_resume
from tests.chaos.process import warm_up
from tests.chaos.requests import Served, attack, serving
from tests.chaos.servers import FaultyServer, deceive, faulty_server
from tests.chaos.table import Row
from tests.chaos.workloads import Unit, Workload

Try = tuple[Findings, list[float]]
POLITE = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Suite:
    """The folders and servers that the faults share; each is made when a fault first needs it."""

    def __init__(self, base: Path, seed: int) -> None:
        self.base = base
        self.seed = seed
        self._stack = ExitStack()
        self._tries = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self, seconds: float, faults: list[str], tries: int = 0) -> list[Row]:
        """Give every fault the same time, in turn, and some tries at least; else stop in time."""
        deadline = time.monotonic() + seconds
        rows = {name: Row(name) for name in faults}
        spent = dict.fromkeys(faults, 0.0)
        margin = max(5.0, seconds * 0.06)  # a try may take as long
        while time.monotonic() < deadline - margin or min(r.tries for r in rows.values()) < tries:
            name = min(spent, key=spent.__getitem__)
            began = time.monotonic()
            self._try(rows[name])
            spent[name] += time.monotonic() - began
        return list(rows.values())

    def _try(self, row: Row) -> None:
        draw = random.Random(f"{self.seed}/{row.fault}/{row.tries}")
        self._tries += 1
        folder = self.base / f"try-{self._tries}"
        try:
            found, seconds = FAULTS[row.fault](self, folder, draw)
        except Exception:  # what no check expects is a finding too
            found, seconds = Findings(said=[traceback.format_exc()]), []
        row.add(found, seconds)
        if found:
            where = f"seed {self.seed}, {row.fault}, try {row.tries}"
            print(f"{where}: {found}", file=sys.stderr, flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)

    # What the faults share

    @cached_property
    def model(self) -> FaultyServer:
        return self._stack.enter_context(faulty_server(0.0, self.seed))

    @cached_property
    def served(self) -> Served:
        return self._stack.enter_context(serving(self.base))

    @cached_property
    def train(self) -> tuple[Workload, list[Unit], float]:
        return self._whole(workloads.training())

    @cached_property
    def eval(self) -> tuple[Workload, list[Unit], float]:
        return self._whole(workloads.evaluation(self.model.url))

    @cached_property
    def data(self) -> tuple[Workload, list[Unit], float]:
        return self._whole(workloads.data())

    @cached_property
    def stages(self) -> tuple[Workload, list[Unit], float]:
        return self._whole(workloads.stages())

    def _whole(self, workload: Workload) -> tuple[Workload, list[Unit], float]:
        """Run undisturbed, and note how long it takes."""
        warm_up(self.base)
        began = time.monotonic()
        whole = grounds.undisturbed(workload, self.base / f"whole-{workload.name}")
        return workload, whole, time.monotonic() - began

    @cached_property
    def run_cases(self) -> Iterator[tuple[Ground, Path, str]]:
        workload, whole, _seconds = self.train
        return self._cases([grounds.run_ground(workload, self.base / "whole-train", whole)])

    @cached_property
    def evaluation_cases(self) -> Iterator[tuple[Ground, Path, str]]:
        workload, whole, _seconds = self.eval
        return self._cases([grounds.evaluation_ground(workload, self.base, whole)])

    @cached_property
    def stages_cases(self) -> Iterator[tuple[Ground, Path, str]]:
        workload, whole, _seconds = self.stages
        return self._cases([grounds.stages_ground(workload, self.base / "whole-stages", whole)])

    @cached_property
    def data_cases(self) -> Iterator[tuple[Ground, Path, str]]:
        return self._cases(list(grounds.data_grounds(self.base)))

    def _cases(self, found: list[Ground]) -> Iterator[tuple[Ground, Path, str]]:
        """Go through the whole matrix in an order of the seed's, again and again."""
        cases = [(ground, *case) for ground in found for case in ground.cases()]
        random.Random(self.seed).shuffle(cases)
        return cycle(cases)


def _kill(
    what: str, signals: tuple[int, ...], most: int = 3
) -> Callable[[Suite, Path, random.Random], Try]:
    def once(suite: Suite, folder: Path, draw: random.Random) -> Try:
        workload, whole, seconds = getattr(suite, what)
        return kill_and_resume(workload, folder, whole, seconds, draw, signals, most)

    return once


def _fill(what: str, largest: int) -> Callable[[Suite, Path, random.Random], Try]:
    def once(suite: Suite, folder: Path, draw: random.Random) -> Try:
        workload, whole, _seconds = getattr(suite, what)
        return fill_and_resume(workload, folder, whole, largest, draw)

    return once


def _damage(cases: str) -> Callable[[Suite, Path, random.Random], Try]:
    def once(suite: Suite, folder: Path, draw: random.Random) -> Try:
        ground, name, kind = next(getattr(suite, cases))
        found, seconds = damage(ground, name, kind, folder, draw)
        if found:
            print(f"{name}: {kind}", file=sys.stderr)
        return found, seconds

    return once


FAULTS: dict[str, Callable[[Suite, Path, random.Random], Try]] = {
    "train: SIGKILL": _kill("train", (signal.SIGKILL,)),
    "train: SIGTERM, SIGHUP, Ctrl-C": _kill("train", POLITE),
    "train: full disk": _fill("train", 700_000),
    "train: damaged file": _damage("run_cases"),
    "eval: SIGKILL": _kill("eval", (signal.SIGKILL,)),
    "eval: SIGTERM, SIGHUP, Ctrl-C": _kill("eval", POLITE),
    "eval: full disk": _fill("eval", 30_000),
    "eval: damaged file": _damage("evaluation_cases"),
    "eval: faulty model server": lambda s, f, draw: deceive(s.model, f, s.eval[1], draw),
    "data: any signal": _kill("data", (signal.SIGKILL, *POLITE)),
    "data: full disk": _fill("data", 300_000),
    "data: damaged file": _damage("data_cases"),
    "stages: any signal": _kill("stages", (signal.SIGKILL, *POLITE), most=1),
    "stages: damaged file": _damage("stages_cases"),
    "serve: hostile requests": lambda s, f, draw: attack(s.served, draw),
}

"""Recollect's sampler beside vLLM: the same prompts, lengths and machine, and one table.

Three shapes: a fold (siblings share a chunk), long lone prompts, and tool use (contexts that grow
over 30 short turns). Each setting has a process of its own (`vllm_peer`), which says how long it
took to start, and then each shape as soon as it is measured, after a turn that warms it up: a limit
(`--limit`) loses only what is not done by then. `--at-once N` lets N of these processes start at
the same time; they measure one after the other. `python -m benchmarks.rollout --peer vllm` calls
this; `--lock FILE` lets two such commands take turns as well.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

Prompts = list[list[int]]
Turn = Callable[[Prompts, int], Awaitable[Prompts]]
"""Continues prompts by exactly that many tokens each; returns the new tokens."""
MODES = ("recollect", "offline", "engine", "server")


@dataclass(frozen=True)
class Shape:
    """What is sampled: `turns` times `contexts` prompts, and `new` tokens for each."""

    name: str
    tasks: int
    group: int
    turns: int
    shared: int
    """Tokens at the beginning of a prompt that the siblings of a group share."""
    own: int
    """Tokens after these that nobody shares; where contexts grow, of a turn."""
    new: int
    grows: bool = False

    async def run(self, turn: Turn, vocabulary: int, seed: int) -> tuple[int, float]:
        """Sample all turns; return new tokens and seconds."""
        rng = random.Random(seed)
        ids = lambda n: [rng.randrange(5, vocabulary) for _ in range(n)]  # noqa: E731
        prompts: Prompts = []
        said: Prompts = []
        seconds = 0.0
        for at in range(self.turns):
            if at and self.grows:
                prompts = [[*p, *n, *ids(self.own)] for p, n in zip(prompts, said, strict=True)]
            else:
                chunks = [ids(self.shared) for _ in range(self.tasks)]
                prompts = [[*chunk, *ids(self.own)] for chunk in chunks for _ in range(self.group)]
            started = time.perf_counter()
            said = await turn(prompts, self.new)
            seconds += time.perf_counter() - started
            assert all(len(new) == self.new for new in said), "a reply has another length"
        return self.turns * self.tasks * self.group * self.new, seconds


@dataclass(frozen=True)
class Cell:
    """One setting, measured in one process."""

    mode: str
    model: str
    sequences: int
    batch_tokens: int
    logprobs: bool
    cache_gib: float
    device: str
    shapes: tuple[Shape, ...]
    window: int
    lock: str = ""
    """A file that is locked while this cell measures."""
    profile: bool = False
    seeds: bool = True
    """Whether every request has a seed, as those of a run have."""
    graphs: int = 0
    """Sequences up to which vLLM records CUDA graphs; 0 leaves the choice to it (up to 512)."""
    limit: float = 0.0
    """Seconds after which its process is ended; 0 for none."""


def shapes(options: argparse.Namespace) -> list[Shape]:
    """Return the shapes that are asked for."""
    tasks, group, new = options.tasks, options.group, options.new_tokens
    every = [
        Shape("fold", tasks, group, options.chunks + 1, options.words, 103, new),
        Shape("lone", options.lone, 1, 2, options.lone_tokens, 0, new),
        Shape("tools", options.tool_tasks or tasks, group, options.tool_turns,
              600 * options.words // 900, 40, 30, True),
    ]  # fmt: skip
    return [shape for shape in every if shape.name in options.shapes]


def cells(options: argparse.Namespace, lock: str) -> list[Cell]:
    """Return the settings that are asked for; our own sampler has fewer than vLLM."""
    wanted = tuple(shapes(options))
    window = max(s.shared + (s.turns if s.grows else 1) * (s.own + s.new) for s in wanted) + 16
    vllm = ("offline", "server")
    return [
        Cell(mode, options.model, sequences, tokens, bool(logprobs), options.cache_gib,
             options.device, wanted, window, lock, options.profile, bool(seeds), graphs,
             options.limit)
        for mode in options.modes
        for sequences in options.sequences
        for tokens in (options.batch_tokens if mode != "recollect" else [0])
        for logprobs in (options.logprobs if mode in vllm else [1])
        for seeds in (options.seeds if mode in vllm else [1])
        for graphs in (options.graphs if mode in vllm else [0])
    ]  # fmt: skip


def race(options: argparse.Namespace) -> int:
    """Measure every cell and print one table; return 1 if a shape is missing."""
    with tempfile.NamedTemporaryFile() as own, ThreadPoolExecutor(options.at_once) as starting:
        lock = options.lock or own.name
        found = list(starting.map(measure, cells(options, lock)))
    rows = [row for measured in found for row in measured]
    print(table(rows))
    for shape, (ours, theirs) in fastest(rows).items():
        held = f"vLLM: {theirs:,.0f}, {ours / theirs:.2f}x" if theirs else "vLLM: not measured"
        print(f"figure | new tokens/s, {shape} | {ours:,.0f} | {held}")
    return int(any("rate" not in row for row in rows))


def measure(cell: Cell) -> list[dict[str, Any]]:
    """Run a cell in a process of its own; return a row for every shape, measured or not."""
    settings = {name: getattr(cell, name) for name in COLUMNS}
    command = [sys.executable, "-m", "benchmarks.vllm_peer", json.dumps(asdict(cell))]
    began, start = time.monotonic(), None
    rows: dict[str, dict[str, Any]] = {}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0)
    ending = threading.Timer(cell.limit or threading.TIMEOUT_MAX, end, [process])
    ending.daemon = True
    ending.start()
    assert process.stdout is not None
    for line in process.stdout:
        said = json.loads(line)
        if "shape" not in said:
            start = round(time.monotonic() - began, 1)
        else:
            rows[said["shape"]] = said
        print(f"{settings} {start} s to start, {said}", file=sys.stderr, flush=True)
        if len(rows) == len(cell.shapes):
            break  # a child of vLLM's may hold the other end a while longer
    ending.cancel()
    end(process)
    for shape in cell.shapes:
        if shape.name not in rows:
            print(f"{settings}: {shape.name} is missing", file=sys.stderr, flush=True)
    return [{"shape": s.name, "start": start} | rows.get(s.name, {}) | settings
            for s in cell.shapes]  # fmt: skip


def end(process: subprocess.Popen[str]) -> None:
    """End a cell's process and all that it started."""
    with suppress(ProcessLookupError):  # it ended by itself
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


COLUMNS = ("mode", "sequences", "batch_tokens", "graphs", "logprobs", "seeds")


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Lay the cells out, the fastest of each shape marked; the start is apart from the rate."""
    best = {row["shape"]: max(r.get("rate", 0.0) for r in rows if r["shape"] == row["shape"])
            for row in rows}  # fmt: skip
    lines = [
        "| shape | sampler | sequences | batch tokens | graphs to | logprobs | seeds | start, s"
        " | warm-up, s | new tokens | s | tokens/s |",
        "|" + "---|" * 12,
    ]
    for row in sorted(rows, key=lambda row: row["shape"]):
        lines.append("| " + " | ".join(_shown(row, best[row["shape"]])) + " |")
    return "\n".join(lines)


def fastest(rows: Sequence[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Return our best rate in every shape, and the best of vLLM's settings; 0 if there is none."""
    found: dict[str, tuple[float, float]] = {}
    for row in rows:
        ours, theirs = found.get(row["shape"], (0.0, 0.0))
        rate = row.get("rate", 0.0)
        mine = row["mode"] == "recollect"
        found[row["shape"]] = (max(ours, rate), theirs) if mine else (ours, max(theirs, rate))
    return found


def _shown(row: dict[str, Any], best: float) -> Iterator[str]:
    yield from (row["shape"], row["mode"], str(row["sequences"]))
    yield from (str(row["batch_tokens"] or "-"), str(row["graphs"] or "-"))
    yield from ("yes" if row[name] else "no" for name in ("logprobs", "seeds"))
    yield "not started" if row["start"] is None else f"{row['start']:.1f}"
    if "rate" not in row:
        yield from ("", "", "", "not measured")
        return
    yield from (f"{row['warm']:.2f}", f"{row['tokens']:,}", f"{row['seconds']:.2f}")
    shown = f"{row['rate']:,.0f}"
    yield f"**{shown}**" if row["rate"] == best else shown

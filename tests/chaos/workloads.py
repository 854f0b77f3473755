"""What is disturbed: small real commands, and the units of work that each leaves behind.

A unit is a name and a value: a step, an episode, a tensor, a file. Two equal runs have equal units.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from recollect.evaluation.folder import EPISODES
from recollect.files import read_lines
from recollect.runs.run import read_records, without_times

Unit = tuple[str, Any]

SMALL = [
    *("--rollout.tasks", "2", "--rollout.n", "2", "--val.tasks", "2", "--val.length-tasks", "2"),
    *("--val.lengths", "1", "--test-freq", "3", "--save-freq", "2", "--updates-per-step", "1"),
    *("--rollout.keep-groups", "1"),
]
STAGES = """
[settings]
rollout.tasks = 2
rollout.n = 2
updates_per_step = 1
test_freq = 2
save_freq = 1
val.tasks = 2

[[stages]]
train = "memory"
steps = 2

[[stages]]
train = "answer"
steps = 2
"""
MEASURED = ("seconds", "at", "run", "replayed", "told")
"""What of an episode tells how it was run, not what it came to."""


@dataclass(frozen=True)
class Workload:
    """A command that fills a folder, and how to list what it must leave there."""

    name: str
    arguments: Callable[[Path], list[str]]
    units: Callable[[Path], Iterator[Unit]]
    progress: str
    """A file that grows with every piece of work done, from the folder."""


def training(steps: int = 6) -> Workload:
    """Return a training run of the demo."""

    def arguments(folder: Path) -> list[str]:
        return ["train", "demo", *SMALL, "--steps", str(steps), "--folder", str(folder)]

    return Workload("train", arguments, lambda f: run_units(f / "demo"), "demo/metrics.jsonl")


def evaluation(url: str, *more: str) -> Workload:
    """Return an evaluation of two agents against the model at an address."""

    def arguments(folder: Path) -> list[str]:
        sizes = ("--tasks", "recall@256", "--agents", "fold,full_context", "--n", "4")
        own = ("--concurrency", "3", "--timeout", "3", "--no-closed-book", *more)
        return ["eval", *sizes, *own, "--model", url, "--out", str(folder / "evaluation")]

    name = f"evaluation/{EPISODES}"
    return Workload("eval", arguments, lambda f: evaluation_units(f / "evaluation"), name)


def stages() -> Workload:
    """Return two stages and the run end to end, with a served model each."""

    def arguments(folder: Path) -> list[str]:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "file.toml"
        if not os.path.lexists(file):  # a damaged one stays as it is
            file.write_text(STAGES)
        return ["stages", str(file), "--folder", str(folder)]

    return Workload("stages", arguments, stages_units, "file/1-memory/metrics.jsonl")


def data() -> Workload:
    """Return a data set that is made on the spot."""

    def arguments(folder: Path) -> list[str]:
        sizes = ("--sessions", "2", "5", "10", "20", "--questions", "40")
        return ["data", "ledger", "--output", str(folder / "ledger"), *sizes]

    return Workload("data", arguments, lambda f: file_units(f / "ledger"), "ledger")


def run_units(run: Path) -> Iterator[Unit]:
    """Yield the steps, tensors and stored episodes of a run."""
    for record in read_records(run):
        yield f"step {record['step']}", without_times(record)
    newest = max((run / "checkpoints").glob("step-*"), default=None)
    for path in [*(newest.glob("*.safetensors") if newest else []), *run.glob("model/*tensors")]:
        yield from tensor_units(path, f"{path.parent.name}/{path.name}")
    for path in sorted((run / "episodes").glob("*.jsonl.gz")):
        yield f"episodes {path.name}", _episodes(path)


def tensor_units(path: Path, name: str) -> Iterator[Unit]:
    """Yield every tensor's bytes."""
    with safe_open(path, "np") as file:
        for key in file.keys():  # noqa: SIM118
            yield f"{name} {key}", hashlib.sha256(file.get_tensor(key).tobytes()).hexdigest()


def evaluation_units(folder: Path) -> Iterator[Unit]:
    """Yield every episode and every score."""
    records = [record for _number, record in read_lines(folder / EPISODES)]
    last = {record["id"]: number for number, record in enumerate(records)}
    for number, record in enumerate(records):
        if record["failure"] is None or last[record["id"]] == number:  # not one that was retried
            kept = {name: value for name, value in record.items() if name not in MEASURED}
            yield f"episode {record['id']}", kept
    results = json.loads((folder / "results.json").read_text())
    for cell in results["cells"]:
        scores = {name: value for name, value in cell.items() if name not in ("cost", "seconds")}
        yield f"score {cell['task']} {cell['agent']}", scores


def stages_units(folder: Path) -> Iterator[Unit]:
    """Yield the table, and the units of every stage."""
    yield "table", (folder / "file/table.md").read_text()
    for path in sorted((folder / "file").glob("*/metrics.jsonl")):
        for name, value in run_units(path.parent):
            yield f"{path.parent.name}: {name}", value


def file_units(folder: Path) -> Iterator[Unit]:
    """Yield every file's bytes."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = str(path.relative_to(folder))
        yield name, hashlib.sha256(path.read_bytes()).hexdigest()


def _episodes(path: Path) -> list[Any]:
    from recollect.runs.episodes import read_episodes

    episodes = read_episodes(path)
    return [(e.task.id, e.answers, e.reward, [c.ids for c in e.contexts]) for e in episodes]

"""Folders to damage: a run, an evaluation that was cut short, stages, and data sets."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.damage import Ground
from tests.chaos.process import start, wait_until
from tests.chaos.workloads import Unit, Workload, data, file_units

TASK = {"text": "The code is 7. The key is red.", "question": "What is the code?", "answer": "7"}


def undisturbed(workload: Workload, folder: Path) -> list[Unit]:
    """Run a command to its end and return its units."""
    status, printed = start(workload.arguments(folder), folder.parent).wait()
    assert status == 0, printed
    return list(workload.units(folder))


def run_ground(workload: Workload, origin: Path, whole: list[Unit]) -> Ground:
    """Return a finished run."""

    def readers(folder: Path, path: Path) -> list[list[str]]:
        shown = [["runs", str(folder)], ["eval", str(folder / "demo"), "--n", "2"]]
        return shown if path.parent.name in ("demo", "model") else []

    return Ground(workload, origin, whole, readers)


def evaluation_ground(workload: Workload, base: Path, whole: list[Unit]) -> Ground:
    """Return an evaluation that was killed with replies of unfinished episodes on disk."""
    origin, finished = base / "evaluation", base / "whole-eval/evaluation"
    calls = origin / "evaluation/calls.jsonl"
    command = start(workload.arguments(origin), base)
    wait_until(lambda: calls.exists() and calls.stat().st_size > 0, 60, command)
    command.send(signal.SIGKILL)
    command.wait()
    for name in ("results.json", "report.md", "report.html"):
        shutil.copy2(finished / name, origin / "evaluation" / name)

    def readers(folder: Path, path: Path) -> list[list[str]]:
        return [[verb, str(folder / "evaluation")] for verb in ("replay", "report")]

    return Ground(workload, origin, whole, readers)


def stages_ground(workload: Workload, origin: Path, whole: list[Unit]) -> Ground:
    """Return finished stages; the files of each stage are those of a run."""

    def readers(folder: Path, path: Path) -> list[list[str]]:
        return [[*workload.arguments(folder), "--dry-run"]]

    return Ground(workload, origin, whole, readers, depth=2)


def data_grounds(base: Path) -> Iterator[Ground]:
    """Yield a made data set and an imported one; making or importing again repairs them."""

    def validate(folder: Path, path: Path) -> list[list[str]]:
        return [["data", "validate", str(path.parent)]]

    made = data()
    yield Ground(made, base / "made", undisturbed(made, base / "made"), validate)
    lines = base / "own.jsonl"
    lines.write_text("".join(json.dumps({"id": str(i), **TASK}) + "\n" for i in range(20)))

    def arguments(folder: Path) -> list[str]:
        return ["data", "jsonl", "--input", str(lines), "--output", str(folder / "own")]

    own = Workload("data jsonl", arguments, lambda f: file_units(f / "own"), "own")
    yield Ground(own, base / "imported", undisturbed(own, base / "imported"), validate)

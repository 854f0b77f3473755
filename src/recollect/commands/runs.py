"""`recollect runs`: every run in a folder in one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from recollect.accuracy import stored_accuracy
from recollect.display.numbers import estimate
from recollect.errors import UserError
from recollect.files import is_locked, read_json
from recollect.foreign import shown
from recollect.runs.run import read_records


@dataclass(frozen=True)
class RunLine:
    """What the table says about one run."""

    name: str
    tasks: str
    agent: str
    steps: str
    score: str
    state: str


def show_runs(folder: Path, console: Console) -> int:
    """Print the table; a folder without runs is a mistake."""
    lines = list(list_runs(folder))
    if not lines:
        raise UserError(f"there are no runs in {folder}", "name a folder: recollect runs FOLDER")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("run", "tasks", "agent", "steps", "best held-out accuracy", "state"):
        table.add_column(name, overflow="fold")
    for line in lines:
        table.add_row(*(shown(text) for text in vars(line).values()))
    console.print(table)
    return 0


def list_runs(folder: Path) -> Iterator[RunLine]:
    """Describe the runs in a folder, and those one folder down, by their names."""
    if (folder / "config.json").exists():
        yield describe(folder)
        return
    for path in sorted(folder.glob("*/config.json")):
        yield describe(path.parent)
    for path in sorted(folder.glob("*/*/config.json")):
        if not (path.parents[1] / "config.json").exists():  # not the model of a run
            yield describe(path.parent)


def describe(folder: Path) -> RunLine:
    """Read a run's line from its settings and metrics; a damaged one says so."""
    try:
        config = read_json(folder / "config.json", "")
        if "identity" in config:
            return RunLine(str(folder), "", "", "", "", "an evaluation: see its report.md")
        rows = list(read_records(folder))
        tasks, agent = (_name(config[part]) for part in ("tasks", "agent"))
        wanted = int(config["steps"])
        best = _best(rows)
    except (UserError, OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        return RunLine(str(folder), "", "", "", "", f"damaged: {str(error).splitlines()[0]}")
    done = max((int(row["step"]) for row in rows), default=0)
    return RunLine(str(folder), tasks, agent, f"{done} of {wanted}", best, state_of(folder))


def _best(rows: Sequence[Mapping[str, Any]]) -> str:
    measured = [row for row in rows if row.get("val/accuracy") is not None]
    if not measured:
        return "not measured"
    best = max(measured, key=lambda row: float(row["val/accuracy"]))
    found = stored_accuracy(best)
    return f"{estimate(found.mean, found.low, found.high)} at step {best['step']}"


def state_of(folder: Path) -> str:
    """Tell whether a run is under way, finished or stopped."""
    if is_locked(folder):
        return "running"
    return "finished" if (folder / "model" / "config.json").is_file() else "stopped"


def _name(part: Any) -> str:
    return str(part["class"]).rpartition(":")[2] if isinstance(part, dict) else str(part)

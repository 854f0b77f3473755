"""What the finished stages came to: kept in stages.json, shown as a table."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from rich.table import Table
from rich.text import Text

from recollect import files as disk
from recollect.accuracy import Accuracy
from recollect.commands.stages.plan import StagePlan
from recollect.display.figures import accuracy_table, plain_table
from recollect.display.numbers import interval, share
from recollect.errors import UserError

FILE = "stages.json"


@dataclass(frozen=True)
class Result:
    """A finished run: who was trained against whom, on how much, and how well the pair does."""

    name: str
    trained: str
    start: str
    fixed: str
    lr: float
    steps: int
    episodes: int
    failed: int
    """Training episodes that failed."""
    before: Accuracy | None
    after: Accuracy
    settings: Mapping[str, str]
    """What it was run with: by dotted name, as JSON."""


def read_results(folder: Path) -> dict[str, Result]:
    """Return the finished runs by name; none if nothing has finished."""
    path = folder / FILE
    if not os.path.lexists(path):  # a broken link is damage, and no reason to begin anew
        return {}
    fix = "restore it from a copy, or choose another --folder"
    found = disk.read_json(path, fix)
    try:
        return {result.name: result for result in RESULTS.validate_python(found["finished"])}
    except (KeyError, ValidationError) as error:
        raise UserError(f"{path} is damaged: {str(error).partition(chr(10))[0]}", fix) from error


def write_results(folder: Path, results: Sequence[Result]) -> None:
    """Replace the file in one move."""
    text = json.dumps({"finished": [asdict(result) for result in results]}, indent=2)
    disk.write_text(folder / FILE, text + "\n")


def write_table(folder: Path, results: Sequence[Result]) -> Path:
    """Write the table as Markdown."""
    path = folder / "table.md"
    disk.write_text(path, markdown(results))
    return path


def score_table(results: Sequence[Result]) -> Table:
    """Show the score after every stage."""
    names = [Text("after", "bold"), Text("trained"), Text("episodes")]
    rows = [
        ([label, trained, f"{episodes:,}" if episodes else ""], accuracy)
        for label, trained, _fixed, episodes, accuracy in _rows(results)
    ]
    return accuracy_table(names, rows)


def markdown(results: Sequence[Result]) -> str:
    """Write the same table as Markdown."""
    lines = [
        "| after | trained | fixed | episodes | accuracy | 95% interval | n | failed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {label} | {trained} | {fixed} | {episodes:,} | {share(a.mean)} |"
        f" {interval(a.low, a.high)} | {a.n} | {a.failed} |"
        for label, trained, fixed, episodes, a in _rows(results)
    ]
    lines += ["", "Held-out accuracy, intervals 95%. A failed episode counts as wrong.", ""]
    return "\n".join(lines)


def show_plan(plan: StagePlan) -> Table:
    """Lay out what would be done, and what is done already."""
    results = read_results(plan.folder)
    shown = plain_table()
    for header in ("run", "trained", "starts from", "fixed", "steps", "lr", "episodes", "state"):
        shown.add_column(header, justify="right" if header in ("steps", "episodes") else "left")
    for stage in plan.stages:
        config = stage.config
        begun = (plan.folder / stage.name / "config.json").exists()
        state = "finished" if stage.name in results else "begun" if begun else "to do"
        cells = (stage.name, stage.trained, stage.start, stage.fixed or "-")
        figures = (f"{config.steps:,}", f"{config.optim.lr:g}", f"{stage.episodes:,}")
        shown.add_row(*(Text(cell) for cell in (*cells, *figures, state)))
    return shown


def _rows(results: Sequence[Result]) -> list[tuple[str, str, str, int, Accuracy]]:
    first = results[0] if results else None
    rows = [("nothing", "", "", 0, first.before)] if first and first.before else []
    return rows + [(r.name, r.trained, r.fixed, r.episodes, r.after) for r in results]


RESULTS = TypeAdapter(list[Result])

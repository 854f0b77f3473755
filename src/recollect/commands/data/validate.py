"""`recollect data validate`: are answers and evidence where they should be, and nothing twice?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from recollect.commands.data.checks import Check, check_files, check_tasks
from recollect.config.modules import is_named
from recollect.errors import UserError
from recollect.evaluation.setup import open_set
from recollect.tasks.base import Split, TaskFamily, notes_of
from recollect.tasks.files.manifest import NAME, read_manifest
from recollect.tasks.named import OPENERS, TaskSpec, is_file_name, parse_specs

_ENDLESS = 200
_MARKS = {None: Text(), True: Text("ok", "green"), False: Text("WRONG", "bold red")}


@dataclass(frozen=True)
class ValidateOptions:
    """Check the tasks of a family; the exit status is 1 where something is wrong."""

    name: Annotated[str, tyro.conf.Positional]
    """A task as `recollect eval` takes it, such as hotpotqa@7k,28k or ruler:vt@8k; or the folder
    or .jsonl file that holds it."""
    data: Path = Path("data")
    """Where the folders of the data sets are."""
    n: int = 1000
    """Tasks to check at most; 200 for an endless family."""
    split: Split = "test"
    seed: int = 0


def run_validate(options: ValidateOptions, console: Console) -> int:
    """Print a table for every family that is named; 1 if anything is wrong."""
    specs, folder = _named(options.name)
    failed = 0
    for spec in specs:
        family = OPENERS[spec.name](spec, folder) if folder else open_set(spec, options.data)
        held = folder or _held(spec, options.data)
        checks = check_files(held) if held and (held / NAME).is_file() else []
        checks += check_tasks(family, spec, _count(family, options), options.seed, options.split)
        console.print(_table(str(spec), checks))
        for note in notes_of(family):
            console.print(note, markup=False, highlight=False, soft_wrap=True)
        failed += sum(check.ok is False for check in checks)
    return 1 if failed else 0


def families_named(name: str, data: Path) -> list[tuple[TaskSpec, TaskFamily]]:
    """Open what was named: tasks as `recollect eval` takes them, a folder or a .jsonl file."""
    specs, folder = _named(name)
    return [
        (spec, OPENERS[spec.name](spec, folder) if folder else open_set(spec, data))
        for spec in specs
    ]


def _named(name: str) -> tuple[list[TaskSpec], Path | None]:
    """Read what was named: tasks, or where one lies."""
    place = re.split("[@#]", name)[0]
    if is_file_name(name):
        return [TaskSpec("jsonl", place)], None
    if (Path(place) / NAME).is_file():
        return parse_specs(read_manifest(Path(place)).name + name[len(place) :]), Path(place)
    specs = parse_specs(name)
    names = (
        s.name for s in specs if s.name not in OPENERS and not is_named(f"{s.name}:{s.variant}")
    )
    unknown = next(names, None)
    if unknown or not specs:
        raise UserError(
            f"{unknown or name!r} is neither a task nor a folder that `recollect data` wrote",
            f"choose from {', '.join(sorted(OPENERS))}, or name a folder or a .jsonl file, or"
            " your own as module:Name",
        )
    return specs, None


def _held(spec: TaskSpec, data: Path) -> Path | None:
    """Return the folder of a data set; a file that is named by its path is in none."""
    return None if spec.name == "jsonl" and spec.variant else data / spec.name


def _count(family: TaskFamily, options: ValidateOptions) -> int:
    size = family.size(options.split)
    if size == 0:
        raise UserError(
            f"{family.name} has no {options.split} tasks", "choose the other split with --split"
        )
    return min(options.n, _ENDLESS if size is None else size)


def _table(title: str, checks: list[Check]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True)
    for check in checks:
        table.add_row(check.name, check.found, _MARKS[check.ok])
    return table

"""`recollect data audit`: does a family give its answers away to rules that do not read?"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from recollect.commands.data.checks import UNLIKELY
from recollect.commands.data.validate import families_named
from recollect.display.numbers import interval, p_value, share, signed
from recollect.errors import UserError
from recollect.tasks.audit.audit import BLIND, RuleScore, audit_rules
from recollect.tasks.audit.labels import same_answer
from recollect.tasks.audit.splits import Overlap, Positions, overlaps, positions
from recollect.tasks.base import Split, TaskFamily
from recollect.types import Task

_TEXT = 48_000_000
"""Characters of one split that are looked at."""


@dataclass(frozen=True)
class AuditOptions:
    """Try rules that do not read the question; the exit status is 1 where one beats a guess."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Tasks as `recollect eval` takes them, such as recall@1k,8k or your own module:Name; or
    folders or .jsonl files."""
    data: Path = Path("data")
    """Where the folders of the data sets are."""
    n: int = 1000
    """Tasks of each split, at most."""
    limit: float = 0.02
    """How much better than a guess a rule may be."""
    words: bool = False
    """Hold rules that match the question's words (BM25) to the limit too."""
    replies: bool = False
    """Hold replies that are the same for every question to the limit too."""
    all: bool = False
    """Show every rule, not only the best of each group."""
    json: bool = False
    """Print one JSON object for each family."""
    seed: int = 0
    split: Split = "test"


@dataclass(frozen=True)
class Audit:
    """What was found about one family."""

    name: str
    tasks: int
    rows: list[RuleScore]
    overlaps: list[Overlap]
    positions: Positions | None
    endless: bool
    """Tasks are made without end: then splits may share a short chunk by chance."""
    placed: bool
    """Somebody asked for the evidence at a certain place."""
    same: tuple[str, float]
    """The answer that nearly all questions have, and how many; empty where they differ."""


def audit_family(
    name: str, family: TaskFamily, n: int, seed: int = 0, split: Split = "test",
    placed: bool = False,
) -> Audit:  # fmt: skip
    """Try all rules on a family's tasks."""
    tasks = _tasks(family, n, seed, split)
    if not tasks:
        raise UserError(f"{name} has no {split} tasks", "choose the other split with --split")
    if not any(task.questions for task in tasks):
        raise UserError(f"{name} asks no questions: nothing can leak", "ask some in every task")
    other: Split = "train" if split == "test" else "test"
    rest = _tasks(family, n, seed, other)
    train, test = (rest, tasks) if split == "test" else (tasks, rest)
    shared = overlaps(train, test) if rest else []
    rows = audit_rules(family, tasks)
    endless = family.size(split) is None
    same = same_answer(tasks)
    return Audit(name, len(tasks), rows, shared, positions(tasks), endless, placed, same)


def _tasks(family: TaskFamily, n: int, seed: int, split: Split) -> list[Task]:
    size = family.size(split)
    tasks, held = [], 0
    for i in range(n if size is None else min(n, size)):
        tasks.append(family.task(i, seed, split))
        held += sum(map(len, tasks[-1].chunks))
        if held > _TEXT:
            break
    return tasks


def leaks(audit: Audit, options: AuditOptions) -> list[str]:
    """Say in words what is over the limit."""
    groups = (*BLIND, *(("words",) if options.words else ()))
    groups += ("reply",) if options.replies else ()
    found = [
        f"{row.group}: {row.rule} scores {share(row.score)}, a guess {share(row.chance)}"
        for row in audit.rows
        if row.group in groups and row.sure and row.excess > options.limit
    ]
    answer, part = audit.same
    if answer:
        many = "all answers are the same" if part == 1 else f"{share(part)} of answers are the same"
        found.append(f"{many}, {answer[:40]!r}: nothing needs to be read")
    bearing = (
        ("whole tasks",) if audit.endless else ("whole tasks", "chunks with evidence", "chunks")
    )
    found += [
        f"{o.shared:,} of {o.of:,} {o.what} of the test split are in the training split"
        for o in audit.overlaps
        if o.what in bearing and o.shared
    ]
    where = audit.positions
    if where and not audit.placed and where.p < UNLIKELY and where.apart > options.limit:
        found.append(f"evidence is not equally likely everywhere (p {p_value(where.p)})")
    return found


def run_audit(options: AuditOptions, console: Console) -> int:
    """Print a table for every family that is named; 1 if one of them leaks."""
    if not options.names:
        raise UserError("audit needs the name of a task", "write one, such as recall@1k")
    failed = 0
    for name in options.names:
        for spec, family in families_named(name, options.data):
            placed = bool(spec.position)
            audit = audit_family(str(spec), family, options.n, options.seed, options.split, placed)
            found = leaks(audit, options)
            failed += bool(found)
            if options.json:
                sys.stdout.write(json.dumps(_record(audit, found), ensure_ascii=False) + "\n")
            else:
                _show(audit, found, options, console)
    return 1 if failed else 0


def _record(audit: Audit, found: Sequence[str]) -> dict[str, Any]:
    rows = [asdict(row) | {"excess": row.excess} for row in audit.rows]
    return asdict(audit) | {"rows": rows, "leaks": list(found)}


def _show(audit: Audit, found: Sequence[str], options: AuditOptions, console: Console) -> None:
    table = Table(
        title=f"{audit.name}: {audit.tasks:,} tasks", title_justify="left", box=None, pad_edge=False
    )
    for column in ("", "rule", "n", "score", "95% interval", "guess", "over"):
        table.add_column(
            column, no_wrap=column != "rule", justify="left" if column in ("", "rule") else "right"
        )
    for row in _shown(audit.rows, options.all):
        leaking = row.sure and row.excess > options.limit
        table.add_row(
            row.group,
            row.rule,
            f"{row.n:,}",
            share(row.score),
            interval(row.low, row.high),
            share(row.chance),
            Text(signed(row.excess), "bold red" if leaking else ""),
        )
    console.print(table)
    if not any(row.group == "value" for row in audit.rows):
        console.print("no rules about values: the answers are free words, or there is one a text")
    for overlap in audit.overlaps:
        console.print(
            f"{overlap.shared:,} of {overlap.of:,} test {overlap.what} are in training too"
        )
    if audit.positions:
        shares = " ".join(share(n / sum(audit.positions.found)) for n in audit.positions.found)
        console.print(
            f"evidence by tenths of the text: {shares}  (uniform: p {p_value(audit.positions.p)})"
        )
    for line in found:
        console.print(f"LEAK {line}", style="bold red", markup=False, highlight=False)
    console.print("" if found else "no leak found\n", markup=False)


def _shown(rows: Sequence[RuleScore], everything: bool) -> list[RuleScore]:
    """Return all rules, or of each group the named ones that issue reports ask for and the best."""
    if everything:
        return list(rows)
    shown = []
    for group in dict.fromkeys(row.group for row in rows):
        mine = [row for row in rows if row.group == group]
        top = sorted(mine, key=lambda row: -row.excess)[:3]
        shown += [
            row
            for row in mine
            if row in top or row.rule in _ALWAYS or group in ("label", "words", "reply")
        ]
    return shown


_ALWAYS = frozenset(
    (
        *("rarest value", "most frequent value", "first value", "most recent value"),
        *("longest document", "first document", "last document", "title that ends in a number"),
        *("value in the longest chunk", "all features, fitted"),
    )
)
"""Rules that are shown whatever they score."""

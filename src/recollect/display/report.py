"""The report card: what a run achieved, what it cost, where it is, and what to type next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from recollect.accuracy import Accuracy
from recollect.display.figures import accuracy_table
from recollect.display.numbers import count, duration, interval, share
from recollect.foreign import for_markdown, one_line


@dataclass(frozen=True)
class Report:
    """The facts at the end of a run."""

    title: str
    folder: Path
    before: Accuracy | None
    """Held-out accuracy before training; None where it was not measured."""
    after: Accuracy
    lengths: Sequence[tuple[int, Accuracy]] = ()
    """(multiple of the training length, held-out accuracy)"""
    steps: int = 0
    episodes: int = 0
    failed: int = 0
    """Episodes that failed in training."""
    sampled_tokens: int = 0
    trained_tokens: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What was trained: model, task, agent, seed."""
    next_command: str = ""
    distractors: Sequence[tuple[int, Accuracy]] = ()
    """(multiple of the distractors, held-out accuracy)"""


def report_card(report: Report) -> RenderableType:
    """Lay the report out for a terminal."""
    parts: list[RenderableType] = [
        Rule(Text(f"Report card: {report.title}", "bold"), style="bright_black", align="left"),
        "",
        _accuracies("Held-out accuracy", _outcomes(report)),
        "",
    ]
    if report.lengths or report.distractors:
        parts += [_accuracies("By length", _cells(report)), ""]
    facts = Table.grid(padding=(0, 3, 0, 0))
    facts.add_column(style="bright_black", no_wrap=True, min_width=6)
    facts.add_column(overflow="fold")
    for name, value in _facts(report):
        facts.add_row(name, Text(value, "bold cyan" if name == "next" else ""))
    return Group(*parts, facts)


def report_markdown(report: Report) -> str:
    """Write the same facts as Markdown, for the run folder."""
    lines = [f"# Report card: {for_markdown(report.title)}", "", "## Held-out accuracy", ""]
    lines += _markdown_table("", _outcomes(report))
    if report.lengths or report.distractors:
        lines += ["", "## Accuracy at multiples of the training length", ""]
        lines += _markdown_table("length", _cells(report))
    lines += [
        "",
        "Intervals are 95%. A failed episode counts as wrong; one without a result, because what"
        " measures it failed, is in no mean.",
        "",
        "## The run",
        "",
    ]
    for name, value in _facts(report):
        text = f"`{one_line(value)}`" if name in ("run", "next") else for_markdown(value)
        lines.append(f"- {name}: {text}")
    return "\n".join(lines) + "\n"


def _outcomes(report: Report) -> list[tuple[str, Accuracy]]:
    before = [("before", report.before)] if report.before else []
    return [*before, ("after", report.after)]


def _cells(report: Report) -> list[tuple[str, Accuracy]]:
    cells = [(f"{times}x", accuracy) for times, accuracy in report.lengths]
    return cells + [(f"{times}x distractors", own) for times, own in report.distractors]


def _accuracies(title: str, rows: Sequence[tuple[str, Accuracy]]) -> Table:
    return accuracy_table([Text(title, "bold")], [([name], accuracy) for name, accuracy in rows])


def _facts(report: Report) -> list[tuple[str, str]]:
    failed = f" ({report.failed:,} failed)" if report.failed else ""
    work = (
        f"{report.steps:,} steps, {report.episodes:,} episodes{failed}, "
        f"{count(report.sampled_tokens)} tokens sampled, {count(report.trained_tokens)} trained"
    )
    total = sum(report.phases.values())
    parts = ", ".join(f"{name} {duration(seconds)}" for name, seconds in report.phases.items())
    facts = [*report.facts.items(), ("work", work)]
    if report.phases:
        facts.append(("time", f"{duration(total)} ({parts})"))
    facts.append(("run", str(report.folder)))
    if report.next_command:
        facts.append(("next", report.next_command))
    return facts


def _markdown_table(head: str, rows: Sequence[tuple[str, Accuracy]]) -> list[str]:
    unmeasured = any(a.unmeasured for _, a in rows)
    more = " unmeasured |" if unmeasured else ""
    lines = [f"| {head} | accuracy | 95% interval | n | failed |{more}"]
    lines += ["|---|---|---|---|---|" + "---|" * unmeasured]
    return lines + [
        f"| {name} | {share(a.mean)} | {interval(a.low, a.high)} | {a.n} | {a.failed} |"
        + f" {a.unmeasured} |" * unmeasured
        for name, a in rows
    ]

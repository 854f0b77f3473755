"""The table of `make chaos` (fault, tries, lost, seconds to recover): printed, put into a page."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.chaos.invariants import Findings

BEGIN, END = "<!-- chaos: begin -->", "<!-- chaos: end -->"


@dataclass
class Row:
    """One fault of the table."""

    fault: str
    tries: int = 0
    lost: int = 0
    doubled: int = 0
    changed: int = 0
    wrong: int = 0
    """Tries with anything wrong at all, a bad message included."""
    seconds: list[float] = field(default_factory=list)
    """To recover: until the first new result, or until the message."""

    def add(self, found: Findings, seconds: list[float]) -> None:
        """Count a try."""
        self.tries += 1
        self.lost += len(found.lost)
        self.doubled += len(found.doubled)
        self.changed += len(found.changed)
        self.wrong += bool(found)
        self.seconds += seconds


def table(rows: list[Row]) -> str:
    """Write the table as Markdown."""
    lines = [
        "| fault | tries | lost | doubled | changed | wrong | seconds to recover, median (worst) |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        took = f"{median(row.seconds):.1f} ({max(row.seconds):.1f})" if row.seconds else "-"
        counts = (row.tries, row.lost, row.doubled, row.changed, row.wrong)
        lines.append(f"| {row.fault} | {' | '.join(map(str, counts))} | {took} |")
    return "\n".join(lines)


def put(page: Path, rows: list[Row], seed: int, minutes: float) -> None:
    """Replace what a page has between the two marks."""
    before, begin, rest = page.read_text("utf-8").partition(BEGIN)
    _old, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no {BEGIN} ... {END} to put the table into")
    said = f"`make chaos` with seed {seed}, {minutes:.0f} minutes:"
    page.write_text(f"{before}{BEGIN}\n{said}\n\n{table(rows)}\n{END}{after}", "utf-8")

"""The table of an experiment: every point of its grid with the interval over its seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from recollect.accuracy import Accuracy
from recollect.display.figures import plain_table
from recollect.display.numbers import interval, share
from recollect.foreign import for_markdown, one_line
from recollect.metrics.statistics import runs_interval

HEADERS = ("before", "accuracy", "95% over seeds", "seeds", "n", "failed")


@dataclass(frozen=True)
class Failure:
    """A run that ended without a result."""

    name: str
    why: str


@dataclass(frozen=True)
class Row:
    """The finished runs of one point of the grid."""

    point: tuple[str, ...]
    after: Sequence[Accuracy]
    before: Sequence[Accuracy]
    wanted: int
    """Runs that the file asks for."""

    @property
    def cells(self) -> tuple[str, ...]:
        """The figures, as in HEADERS."""
        seeds = f"{len(self.after)} of {self.wanted}"
        if not self.after:
            return ("", "", "", seeds, "", "")
        before = runs_interval([a.mean for a in self.before])[0] if self.before else math.nan
        mean, low, high = over_seeds(self.after)
        return (
            "" if math.isnan(before) else share(before),
            share(mean),
            "one seed" if math.isnan(low) else interval(low, high),
            seeds,
            " ".join(dict.fromkeys(str(a.n) for a in self.after)),
            str(sum(a.failed for a in self.after)),
        )


def over_seeds(found: Sequence[Accuracy]) -> tuple[float, float, float]:
    """Return the mean of runs and its interval over seeds, within 0 and 1.

    Where all seeds agree to the digit, their spread says nothing: the interval is then as wide as
    that of a single run over its questions.
    """
    mean, low, high = runs_interval([a.mean for a in found])
    if low == high:
        low, high = min(a.low for a in found), max(a.high for a in found)
    return (mean, low, high) if math.isnan(low) else (mean, max(0.0, low), min(1.0, high))


def score_table(names: Sequence[str], rows: Sequence[Row]) -> Table:
    """Lay the table out for a terminal."""
    table = plain_table(padding=2)
    for name in names:
        table.add_column(Text(name, "bold"), overflow="fold")
    for header in HEADERS:
        table.add_column(header, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, (*row.point, *row.cells)))
    return table


def markdown(names: Sequence[str], rows: Sequence[Row], failures: Sequence[Failure]) -> str:
    """Write the same table as Markdown."""
    headers = [*(for_markdown(name) for name in names), *HEADERS]
    lines = [f"| {' | '.join(headers)} |", "|" + "---|" * len(headers)]
    for row in rows:
        cells = [*(for_markdown(one_line(value)) for value in row.point), *row.cells]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "Held-out accuracy after training, averaged over seeds. The interval is Student's, over"
        " the runs; n is the number of held-out episodes of each run. A failed episode counts as"
        " wrong.",
    ]
    lines += [""] * bool(failures)
    lines += [f"- failed: {f.name}: {for_markdown(one_line(f.why))}" for f in failures]
    return "\n".join(lines) + "\n"

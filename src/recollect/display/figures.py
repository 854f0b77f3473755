"""Tables and small drawings of a terminal: bars, sparklines, accuracies, settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from rich.table import Table
from rich.text import Text

from recollect.accuracy import Accuracy
from recollect.display.numbers import interval, share

SPARKS = "▁▂▃▄▅▆▇█"
BAR = 20
"""Characters from 0 to 1 in the bar of an interval."""


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw finite values as a line of bars, averaging neighbours when there are too many."""
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return ""
    if len(values) > width:
        edges = [round(i * len(values) / width) for i in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(values), max(values)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0  # most rewards live here, and a fixed scale does not jump about
    span = (high - low) or 1.0
    return "".join(SPARKS[round((value - low) / span * (len(SPARKS) - 1))] for value in values)


def interval_bar(low: float, mean: float, high: float, width: int = BAR) -> Text:
    """Draw an interval and its mean on a line from 0 to 1; where there is no room, it gives way."""

    def at(value: float) -> int:
        return round(min(1.0, max(0.0, value)) * (width - 1))

    left, middle, right = at(low), at(mean), at(high)
    return Text.assemble(
        ("─" * left, "bright_black"),
        ("━" * (middle - left), "cyan"),
        ("●", "bold cyan"),
        ("━" * (right - middle), "cyan"),
        ("─" * (width - 1 - right), "bright_black"),
        no_wrap=True,
        overflow="crop",
    )


def plain_table(padding: int = 3) -> Table:
    """Start a table without lines."""
    return Table(box=None, pad_edge=False, padding=(0, padding, 0, 0), header_style="bright_black")


def accuracy_table(names: Sequence[Text], rows: Sequence[tuple[Sequence[str], Accuracy]]) -> Table:
    """Show accuracies with their intervals, n, and how many failed or could not be measured."""
    table = plain_table(padding=2)
    for name in names:
        # A lone name is a heading: tables below one another line up.
        table.add_column(name, min_width=17 if len(names) == 1 else None, no_wrap=True)
    for header in ("mean", "95% interval"):
        table.add_column(header, justify="right", no_wrap=True)
    # The one column that may be cut: every number beside it must stay whole.
    table.add_column(Text("0" + "1".rjust(BAR - 1), no_wrap=True, overflow="crop"))
    unmeasured = any(a.unmeasured for _, a in rows)
    for header in ("n", "failed", *(["unmeasured"] if unmeasured else [])):
        table.add_column(header, justify="right", no_wrap=True)
    for labels, a in rows:
        table.add_row(
            *labels,
            Text(share(a.mean), "bold"),
            interval(a.low, a.high),
            interval_bar(a.low, a.mean, a.high),
            str(a.n),
            Text(str(a.failed), "yellow" if a.failed else ""),
            *([Text(str(a.unmeasured), "yellow" if a.unmeasured else "")] if unmeasured else []),
        )
    return table


def grid(rows: Mapping[str, object]) -> Table:
    """Lay out names and values."""
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(style="bright_black", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(Text(name), Text(str(value)))
    return table

"""Trained baselines beside a memory that a published page has, whose single answers are gone."""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile
from math import hypot

from benchmarks import chronicle_table as table

_PUBLISHED = re.compile(r"(\d\.\d{3}) \[(\d\.\d{3}), (\d\.\d{3})\](?: n=\d+(?: f=\d+)?)?")


def published(
    page: str, place: str = "### Accuracy"
) -> dict[tuple[str, str, str], tuple[float, float, float]]:
    """Read the table of accuracies that follows a place of a page: means and their intervals."""
    after = dropwhile(lambda line: line[:1] != "|", page.partition(place)[2].splitlines())
    lines = takewhile(str.strip, after)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    if not rows:
        raise SystemExit("the page has no table of accuracies")
    found = {}
    for kind, agent, *shown in rows[2:]:
        for length, cell in zip(rows[0][2:], shown, strict=True):
            if length == "hazard" or not cell:
                continue
            own = _PUBLISHED.fullmatch(cell)
            if own is None:
                raise SystemExit(f"the page's accuracy of {agent}, {kind}, {length} is {cell!r}")
            found[agent, kind, length] = (float(own[1]), float(own[2]), float(own[3]))
    return found


def beside(cells: table.Cells, page: str) -> list[str]:
    """Compare trained memories that a page has with trained baselines that were measured later.

    Newcombe's interval of a difference: not paired, as the page keeps no single answers, and not
    corrected.
    """
    lines = ["| kind | length | | difference |", "|---|---|---|---|"]
    for (ours, kind, length), (share, low, high) in published(page).items():
        if ours not in table.MEMORIES or length not in table.HEADLINE:
            continue
        for theirs in table.BASELINES:
            if (theirs, kind, length) not in cells:
                continue
            other, less, more = table.accuracy(cells[theirs, kind, length])
            down, up = hypot(share - low, more - other), hypot(high - share, other - less)
            gap = share - other
            figures = f"{gap:+.3f} [{gap - down:+.3f}, {gap + up:+.3f}]"
            lines.append(f"| {kind} | {length} | {ours} - {theirs} | {figures} |")
    return lines

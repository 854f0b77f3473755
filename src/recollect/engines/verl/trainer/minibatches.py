"""How a batch of contexts becomes a fixed number of mini-batches on some processes. Pure functions.

verl deals rows to processes and cuts each share into mini-batches of equally many rows. We cut
along groups, as the embedded engine does, and fill up with rows that train nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

Deal = Callable[[Sequence[int], int], list[list[int]]]
"""(sizes, ranks) -> for each rank the indices it gets, equally many."""


def cut(groups: Sequence[str], order: Sequence[str], parts: int) -> list[list[int]]:
    """Cut rows, given the group of each, into `parts` parts of nearly as many groups each.

    `order` lists all groups; those of which nothing is left are passed over, and where fewer are
    left than parts, some parts are empty.
    """
    members: dict[str, list[int]] = {group: [] for group in order}
    for row, group in enumerate(groups):
        members[group].append(row)
    left = [rows for rows in members.values() if rows]
    bounds = [len(left) * part // parts for part in range(parts + 1)]
    return [
        [row for rows in left[begin:end] for row in rows]
        for begin, end in itertools.pairwise(bounds)
    ]


def needed(parts: Sequence[Sequence[int]], ranks: int) -> int:
    """Return how many rows there must be for every part to take equally many on every rank."""
    widest = max(len(part) for part in parts)
    return len(parts) * ranks * max(1, -(-widest // ranks))


def arrange(
    parts: Sequence[Sequence[int]], padding: Sequence[int], sizes: Sequence[int], ranks: int,
    deal: Deal,
) -> list[int]:  # fmt: skip
    """Order rows so that rank r's share is part 1, part 2 ... each filled up with padding."""
    width = needed(parts, ranks) // len(parts)
    spare = iter(padding)
    shares: list[list[int]] = [[] for _ in range(ranks)]
    for part in parts:
        rows = [*part, *itertools.islice(spare, width - len(part))]
        dealt = deal([sizes[row] for row in rows], ranks)
        for share, own in zip(shares, dealt, strict=True):
            share += sorted(rows[i] for i in own)
    return [row for share in shares for row in share]

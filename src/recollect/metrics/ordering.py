"""How well events are put in order: Kendall's tau-b, and BEAM's score made of it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations

from recollect.metrics.answers import f1


@dataclass(frozen=True)
class Ordering:
    """Which events were named, and in which order."""

    found: float
    """F1 of the events that were named."""
    tau: float
    """Kendall's tau-b from -1 to 1, brought to 0 to 1."""


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float:
    """Return tau-b of two rankings of the same things; 0 where one of them ranks nothing."""
    concordant = ties_first = ties_second = 0
    pairs = list(combinations(zip(first, second, strict=True), 2))
    for (a, b), (c, d) in pairs:
        concordant += ((a > c) - (a < c)) * ((b > d) - (b < d))
        ties_first += a == c
        ties_second += b == d
    ranked = (len(pairs) - ties_first) * (len(pairs) - ties_second)
    return concordant / math.sqrt(ranked) if ranked else 0.0


def order_events(reference: int, said: Sequence[Hashable]) -> Ordering:
    """Score an order of events: numbers from 0 name those of the reference; others are ignored.

    As BEAM does, what only one of the two names comes after all that the other names.
    """
    wanted = list(range(reference))
    right = len({event for event in said if event in wanted})
    others = len([event for event in said if event not in wanted])
    both = list(dict.fromkeys([*wanted, *said]))
    if said and list(said) == wanted:
        return Ordering(1.0, 1.0)  # also of a single event, which has no order

    def ranks(events: Sequence[Hashable]) -> list[float]:
        place = {event: i for i, event in enumerate(events)}
        return [place.get(event, len(both)) for event in both]

    tau = kendall_tau(ranks(wanted), ranks(said))
    return Ordering(f1(right, right + others, reference), (tau + 1) / 2)

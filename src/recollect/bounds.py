"""Bounds: what a number that a person sets may be. Knows no setting by name."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

from recollect.errors import UserError


@dataclass(frozen=True)
class Bounds:
    """Numbers that have sense somewhere; nan never has any."""

    words: str
    """What follows `set --NAME`."""
    hold: Callable[[float], bool]


FINITE = Bounds("to a finite number", lambda value: abs(value) <= sys.float_info.max)
FROM_0 = Bounds("to 0 or more", lambda number: 0 <= number < math.inf)
FROM_1 = Bounds("to 1 or more", lambda number: 1 <= number < math.inf)
ABOVE_0 = Bounds("above 0", lambda number: 0 < number < math.inf)
SHARE = Bounds("from 0 to 1", lambda number: 0 <= number <= 1)
NUCLEUS = Bounds("above 0 and up to 1", lambda number: 0 < number <= 1)
DRAFT = Bounds("from 0 to 15", lambda number: 0 <= number <= 15)
DECAY = Bounds("to 0 or more, and below 1", lambda number: 0 <= number < 1)


def check_bounds(section: str, settings: object, **bounds: Bounds) -> None:
    """Refuse settings out of bounds; of a tuple every number counts, and None is no number."""
    for name, own in bounds.items():
        value = getattr(settings, name)
        numbers = value if isinstance(value, tuple) else (value,)
        if not all(number is None or own.hold(number) for number in numbers):
            full = f"{section}.{name}" if section else name
            words = own.words + ", and finite" * (math.inf in numbers and own is not FINITE)
            shown = " ".join(map(str, numbers))
            raise UserError(f"{full} is {shown}", f"set --{full.replace('_', '-')} {words}")

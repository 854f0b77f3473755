"""Tasks at multiples of their length, as settings name them. Knows no family of tasks."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

from recollect.errors import UserError, place_of_function
from recollect.tasks.base import TaskFamily

Family = TypeVar("Family", bound=TaskFamily)


@runtime_checkable
class Crowded(Protocol):
    """Tasks whose number of distractors can be multiplied."""

    def crowded(self, times: int) -> TaskFamily:
        """Return the same family with `times` as many distractors."""


def stretched(family: Family, times: int, setting: str) -> Family:
    """Return a family with `times` the text; name the setting if it cannot be lengthened."""
    try:
        longer: Any = family.longer(times)
    except UserError as error:
        raise UserError(
            f"{setting} asks for {times} times the text: {error.what}",
            f"set --{setting} to smaller multiples; 1 is always possible",
        ) from error
    if not hasattr(longer, "task"):
        place = place_of_function(family.longer)
        what = f"{place}: {type(family).__name__}.longer returned {longer!r:.80}"
        raise UserError(what, "return a family of tasks with longer texts")
    found: Family = longer
    return found

"""Tasks at multiples of their length, as settings name them. Knows no family of tasks."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

from recollect.errors import UserError
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
        return family.longer(times)
    except UserError as error:
        raise UserError(
            f"{setting} asks for {times} times the text: {error.what}",
            f"set --{setting} to smaller multiples; 1 is always possible",
        ) from error

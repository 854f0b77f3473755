"""What a program may use: steps, bytes and calls, all counted, so that the same program always ends
at the same place. Wall-clock time decides nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from recollect.bounds import FROM_1, check_bounds

LARGEST = 1 << 60
"""Numbers stay below this: then no two of them share a hash, and none takes long to multiply."""


class ProgramError(Exception):
    """What is wrong with a program, in a line; the interpreter adds the number of its line."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


class Exhausted(ProgramError):
    """A budget is used up."""


@dataclass(frozen=True)
class Limits:
    """Limits of one program."""

    max_steps: int = 2_000_000
    """Steps of work; a step takes about a microsecond. Every character of the text adds 4."""
    max_bytes: int = 1 << 28
    """Bytes of everything that the program makes, whether it is kept or not. Every character of the
    text adds 64."""
    max_source: int = 4000
    """Characters of a program."""
    max_kept: int = 1 << 26
    """Bytes of the variables that the next program finds."""

    def __post_init__(self) -> None:
        names = ("max_steps", "max_bytes", "max_source", "max_kept")
        check_bounds("agent.program", self, **dict.fromkeys(names, FROM_1))

    def over(self, characters: int) -> Limits:
        """Return the limits of programs over a text of this many characters."""
        return replace(
            self,
            max_steps=self.max_steps + 4 * characters,
            max_bytes=self.max_bytes + 64 * characters,
        )


class Budget:
    """What one program has used so far."""

    __slots__ = ("bytes", "limits", "steps")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.steps = 0
        self.bytes = 0

    def step(self, count: int = 1) -> None:
        """Count work, before it is done."""
        self.steps += count
        if self.steps > self.limits.max_steps:
            raise Exhausted(f"the program takes more than {self.limits.max_steps} steps")

    def take(self, size: int) -> None:
        """Count bytes, before they are taken; filling them is work, too."""
        self.bytes += size
        if self.bytes > self.limits.max_bytes:
            raise Exhausted(f"the program makes more than {self.limits.max_bytes} bytes")
        self.step(size >> 8)

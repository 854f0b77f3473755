"""Evidence hidden in long texts: the settings that RULER's and BABILong's families share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from recollect.errors import UserError
from recollect.tasks.haystacks.haystack import Position, check_lengths, check_place, show_place

FULL = 0.99
"""How much of the wanted length is filled: lengths are estimates, and none should be exceeded."""


@dataclass(frozen=True)
class HiddenEvidence:
    """One kind of question, one length, and the position of its evidence."""

    name: ClassVar[str] = ""
    variants: ClassVar[tuple[str, ...]] = ()

    variant: str = ""
    tokens: int = 8192
    """Length of text and question, estimated."""
    chunk_tokens: int = 512
    """Length of a chunk, where chunks are not documents."""
    position: Position = "any"
    """The position of the evidence."""
    depth: float | None = None
    """The exact position of the evidence instead, from 0 (start) to 1 (end)."""
    folder: Path = Path()

    def __post_init__(self) -> None:
        if self.variant not in self.variants:
            raise UserError(
                f"{self.name} has no variant {self.variant!r}",
                f"choose from {', '.join(self.variants)}",
            )
        check_lengths(self.tokens, self.chunk_tokens)
        check_place(self.position, self.depth)

    def longer(self, times: int) -> Self:
        """Return the same kind at `times` the length."""
        return replace(self, tokens=self.tokens * times)

    def _id(self, name: str) -> str:
        place = show_place(self.position, self.depth)
        return f"{self.name}-{self.variant}-{name}-of-{self.tokens}-tokens{place}"

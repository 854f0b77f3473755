"""How a store differs from an earlier state, and how far it has grown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recollect.memory.entries import Entry
from recollect.memory.terms import words

CountTokens = Callable[[str], int]


@dataclass(frozen=True)
class Diff:
    """How one state differs from an earlier one."""

    created: tuple[Entry, ...]
    updated: tuple[tuple[Entry, Entry], ...]
    """Before and after."""
    deleted: tuple[Entry, ...]


@dataclass(frozen=True)
class Growth:
    """How far a store has moved from its base."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    tokens: int = 0
    """Tokens it holds more than its base; negative if it holds fewer."""
    bytes: int = 0
    """What its edits take in memory, about."""

    @classmethod
    def of(cls, diff: Diff, bytes: int, count_tokens: CountTokens) -> Growth:
        """Measure a difference from the base."""
        written = [*diff.created, *(new for _, new in diff.updated)]
        removed = [*diff.deleted, *(old for old, _ in diff.updated)]
        tokens = sum(count_tokens(entry.content) for entry in written)
        tokens -= sum(count_tokens(entry.content) for entry in removed)
        return cls(len(diff.created), len(diff.updated), len(diff.deleted), tokens, bytes)

    def __add__(self, other: Growth) -> Growth:
        return Growth(
            self.created + other.created,
            self.updated + other.updated,
            self.deleted + other.deleted,
            self.tokens + other.tokens,
            self.bytes + other.bytes,
        )


def count_words(text: str) -> int:
    """Count tokens where there is no tokenizer: by words."""
    return len(words(text))

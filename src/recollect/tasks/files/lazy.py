"""Sequences whose items are made when they are asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class Lazy(Sequence[T]):
    """A sequence of `len` items, of which each is made by `item`; it equals one of equal items."""

    @abstractmethod
    def item(self, place: int) -> T:
        """Make the item at a place from 0 to the length."""

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            return [self.item(i) for i in range(len(self))[at]]
        return self.item(range(len(self))[at])

    def __iter__(self) -> Iterator[T]:
        return map(self.item, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

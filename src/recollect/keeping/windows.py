"""Items to read, packed into windows: what an agent reads at a time.

Windows are filled in order, so a full one stays as it is when items are added at the end. Knows
nothing of agents or memories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from recollect.foreign import storable

Count = Callable[[str], int]
"""The number of tokens of a text."""

BREAKS = ("\n\n", "\n", ". ", " ")
"""Where a long text is cut, the best place first."""
JOIN = "\n\n"
_FIRST_GUESS = 4  # characters of a token, until some have been counted


@dataclass(frozen=True)
class Item:
    """Something to read and, one day, to forget: a message, a note, a file."""

    text: str
    id: str = ""
    about: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What is stored beside the text and never read, such as when it came."""

    def __post_init__(self) -> None:
        if not self.id:
            object.__setattr__(self, "id", digest(self.text))


@dataclass(frozen=True)
class Window:
    """Text of one or more items, or a part of one."""

    text: str
    items: tuple[str, ...]
    """The ids of the items that it shows something of."""
    tokens: int


def digest(*parts: str) -> str:
    """Name texts by their content."""
    hashed = sha256()
    for part in parts:
        data = storable(part).encode()
        hashed.update(len(data).to_bytes(8, "little") + data)
    return hashed.hexdigest()[:32]


class Packer:
    """Windows that are filled with one item after another.

    A long item is cut piece by piece, and others may run in between.
    """

    def __init__(self, size: int, count: Count) -> None:
        self.size, self.count = size, count
        self._full: list[Window] = []
        self._held: list[str] = []
        self._ids: list[str] = []
        self._tokens = 0

    @property
    def windows(self) -> list[Window]:
        """The windows so far; only the last one can still grow."""
        return [*self._full, self._window()] if self._held else list(self._full)

    def fork(self) -> Packer:
        """Return a copy that can be filled differently."""
        other = Packer(self.size, self.count)
        other._full, other._held, other._ids = self._full[:], self._held[:], self._ids[:]
        other._tokens = self._tokens
        return other

    async def add(self, items: Iterable[Item]) -> None:
        """Add items at the end."""
        for item in items:
            for piece, length in pieces(item.text, self.size, self.count):
                self._put(item.id, piece, length)
                await asyncio.sleep(0)

    def put(self, items: Iterable[Item]) -> None:
        """Add items at the end, in one go."""
        for item in items:
            for piece, length in pieces(item.text, self.size, self.count):
                self._put(item.id, piece, length)

    def _put(self, id: str, piece: str, length: int) -> None:
        joined = self.count(JOIN)
        if self._held and self._tokens + joined + length > self.size:
            self._full.append(self._window())
            self._held, self._ids, self._tokens = [], [], 0
        self._tokens += length + (joined if self._held else 0)
        self._held.append(piece)
        self._ids.append(id)

    def _window(self) -> Window:
        return Window(JOIN.join(self._held), tuple(dict.fromkeys(self._ids)), self._tokens)


def pack(items: Iterable[Item], size: int, count: Count) -> Iterator[Window]:
    """Fill windows of at most `size` tokens with items in order; a longer item is cut."""
    packer = Packer(size, count)
    packer.put(items)
    yield from packer.windows


def pieces(text: str, size: int, count: Count) -> Iterator[tuple[str, int]]:
    """Cut a text into pieces of at most `size` tokens, at ends of paragraphs where possible."""
    at = 0
    guess = size * _FIRST_GUESS
    while at < len(text):
        piece = text[at : at + guess]
        length = count(piece)
        if length > size and len(piece) > 1:
            guess = max(1, min(len(piece) - 1, len(piece) * size // length))
            continue
        if at + len(piece) < len(text):
            piece = piece[: _cut(piece)]
            length = count(piece)
        if piece.strip():
            yield piece, length
        at += len(piece)
        guess = max(1, len(piece) * size // max(1, length))


def _cut(piece: str) -> int:
    """Return where to end a piece that more text follows: in its second half, if it can be."""
    for mark in BREAKS:
        found = piece.rfind(mark)
        if found > len(piece) // 2:
            return found + len(mark)
    return len(piece)

"""Which page of a sampler's cache holds which tokens. Knows nothing of models.

A page is a fixed number of consecutive tokens of a sequence. A full page is named by what it holds
and by the page before it, so that every later prompt that begins alike finds it. A page that no one
reads stays until its place is needed, the longest unread one first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

Name = tuple["Page | None", bytes]
"""The page before it, and the tokens it holds."""


class OutOfPages(Exception):
    """Every page is being read."""


@dataclass(eq=False)
class Page:
    """Room for some tokens of a sequence."""

    place: int
    """Its place in the cache."""
    name: Name | None = None
    readers: int = 0


class Pages:
    """Lend pages out, and find those that hold the beginning of a prompt."""

    def __init__(self, count: int, size: int) -> None:
        self.count = count
        self.size = size
        """Tokens of one page."""
        self.clear()

    def clear(self) -> None:
        """Forget what every page holds. Place 0 is never lent: padding is written there."""
        self._free = list(range(self.count - 1, 0, -1))
        self._named: dict[Name, Page] = {}
        self._unread: dict[Page, None] = {}

    @property
    def room(self) -> int:
        """Pages that could be taken."""
        return len(self._free) + len(self._unread)

    @property
    def free(self) -> int:
        """Pages that could be taken without forgetting what another one holds."""
        return len(self._free)

    def touch(self, ids: np.ndarray) -> None:
        """Make the pages that hold the beginning of a prompt the last ones to be forgotten."""
        self.give_back(self.find(ids))

    def find(self, ids: np.ndarray) -> list[Page]:
        """Read the pages that hold the beginning of a prompt; its last token is never in them."""
        found: list[Page] = []
        before: Page | None = None
        for tokens in self._cut(ids, (len(ids) - 1) // self.size):
            page = self._named.get((before, tokens))
            if page is None:
                break
            self._unread.pop(page, None)
            page.readers += 1
            found.append(page)
            before = page
        return found

    def take(self, count: int) -> list[Page]:
        """Lend empty pages."""
        if count > self.room:
            raise OutOfPages
        taken = []
        for _ in range(count):
            if not self._free:
                oldest = next(iter(self._unread))
                del self._unread[oldest]
                self._forget(oldest)
                self._free.append(oldest.place)
            taken.append(Page(self._free.pop(), readers=1))
        return taken

    def name(self, pages: Sequence[Page], ids: np.ndarray) -> None:
        """Let others find the full pages of a sequence, whose tokens `ids` begins with."""
        before: Page | None = None
        for page, tokens in zip(pages, self._cut(ids, len(ids) // self.size), strict=False):
            if page.name is None:
                if (before, tokens) in self._named:
                    return  # another sequence came to the same tokens: its pages are found
                page.name = (before, tokens)
                self._named[page.name] = page
            before = page

    def give_back(self, pages: Sequence[Page]) -> None:
        """Read pages no longer; a later one goes before those it follows."""
        for page in reversed(pages):
            page.readers -= 1
            if page.readers:
                continue
            if page.name is None:
                self._free.append(page.place)
            else:
                self._unread[page] = None

    def _forget(self, page: Page) -> None:
        if page.name is not None:
            del self._named[page.name]
            page.name = None

    def _cut(self, ids: np.ndarray, count: int) -> Iterable[bytes]:
        raw = ids[: count * self.size].tobytes()
        width = self.size * ids.itemsize
        return (raw[at : at + width] for at in range(0, len(raw), width))

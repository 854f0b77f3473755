"""Which page of a sampler's cache holds which tokens. Knows nothing of models.

A page is a fixed number of consecutive tokens of a sequence; it goes by its place in the cache. A
full page is named by what it holds and by the page before it, so that every later prompt that
begins alike finds it. A page that no one reads stays until its place is needed, the longest unread
one first. Thousands of requests ask at once: what is done for every page is arrays where it can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress

import numpy as np

Name = tuple[int, bytes]
"""The number of the page before it (0: none), and the tokens it holds."""


class OutOfPages(Exception):
    """Every page is being read."""


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
        self._named: dict[Name, int] = {}
        self._names: list[Name | None] = [None] * self.count
        self._numbers = [0] * self.count
        """Each content has a number of its own, so that no page follows a forgotten one."""
        self._given = 0
        self._is_named = np.zeros(self.count, dtype=bool)
        self._unread: dict[int, None] = {}
        self.readers = np.zeros(self.count, dtype=np.int64)

    @property
    def room(self) -> int:
        """Pages that could be taken."""
        return len(self._free) + len(self._unread)

    @property
    def free(self) -> int:
        """Pages that could be taken without forgetting what another one holds."""
        return len(self._free)

    def find(self, ids: np.ndarray) -> list[int]:
        """Read the pages that hold the beginning of a prompt; its last token is never in them."""
        found: list[int] = []
        before, known = 0, self._named
        for tokens in self._cut(ids, 0, (len(ids) - 1) // self.size):
            if (place := known.get((before, tokens))) is None:
                break
            found.append(place)
            before = self._numbers[place]
        if found:
            for place in compress(found, self.readers[found] == 0):
                del self._unread[place]
            self.readers[found] += 1
        return found

    def keep(self, prompts: Iterable[np.ndarray]) -> None:
        """Let the pages that hold the beginnings of prompts go last, those of the first at all."""
        for ids in reversed(list(prompts)):
            self.give_back(self.find(ids))

    def take(self, count: int) -> list[int]:
        """Lend empty pages."""
        if count > self.room:
            raise OutOfPages
        while len(self._free) < count:
            oldest = next(iter(self._unread))
            del self._unread[oldest]
            self._forget(oldest)
            self._free.append(oldest)
        taken = self._free[len(self._free) - count :]
        del self._free[len(self._free) - count :]
        self.readers[taken] = 1
        return taken[::-1]

    def name(self, pages: Sequence[int], ids: np.ndarray, named: int = 0) -> int:
        """Let others find the full pages of a sequence, whose tokens `ids` begins with.

        The first `named` of them have names already. Returns how many have now.
        """
        count = min(len(pages), len(ids) // self.size)
        before = self._numbers[pages[named - 1]] if named else 0
        for tokens in self._cut(ids, named, count):
            place = int(pages[named])
            if self._names[place] is None:
                name = (before, tokens)
                if name in self._named:
                    return named  # another sequence came to the same tokens: its pages are found
                self._named[name] = place
                self._names[place] = name
                self._is_named[place] = True
                self._given += 1
                self._numbers[place] = self._given
            before = self._numbers[place]
            named += 1
        return named

    def give_back(self, pages: Sequence[int] | np.ndarray) -> None:
        """Read pages no longer; a later one goes before those it follows."""
        if not len(pages):
            return
        given = np.asarray(pages)[::-1]
        left = self.readers[given] - 1
        self.readers[given] = left
        unread = given[left == 0]
        named = self._is_named[unread]
        self._free += unread[~named].tolist()
        self._unread.update(dict.fromkeys(unread[named].tolist()))

    def _forget(self, place: int) -> None:
        if (name := self._names[place]) is not None:
            del self._named[name]
            self._names[place] = None
            self._is_named[place] = False

    def _cut(self, ids: np.ndarray, first: int, last: int) -> list[bytes]:
        raw = ids[first * self.size : last * self.size].astype(np.int32).tobytes()
        width = self.size * 4
        return [raw[at : at + width] for at in range(0, len(raw), width)]

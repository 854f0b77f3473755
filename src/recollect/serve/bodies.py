"""Read a request's body within limits: bytes, seconds, and how much JSON is in it.

What a body would become in memory is counted while its bytes come, before any of it is parsed.
Knows nothing of what the requests mean.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from recollect.serve.refusal import Refusal, busy, too_long_text
from recollect.serve.settings import RequestLimits

OPENED = 1 << 14
"""Lists and objects in one body ..."""
KEYS = 1 << 14
"""... and names in its objects."""
FOLDED = 1 << 18
"""Values, lists and names of a conversation that may be longer than the window."""
DIGITS = 64
"""Digits of a number."""
TOKEN_BYTES, LEAST = 32, 1 << 20
"""Bytes of a body for each token of the window, and those that every body may have: JSON is parsed
in one go, during which nobody else is served."""
HELD = 4
"""Bodies of full size that may be in memory at once; many small ones fit in their place."""


_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % (DIGITS + 1))


@dataclass
class JsonShape:
    """Counts the values, lists, objects and names of JSON that comes in pieces."""

    values: int = 0
    opened: int = 0
    keys: int = 0
    long_number: bool = False
    """Whether a number is long enough to take a while to read."""
    _inside: bool = False
    """Whether a string is open."""
    _held: bytes = b""
    """A backslash that the next piece belongs to."""

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        data = self._held + piece
        slashes = len(data) - len(data.rstrip(b"\\"))
        self._held = b"\\" if slashes % 2 else b""
        data = data[: len(data) - len(self._held)].replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = data.split(b'"')
        for part in parts[self._inside :: 2]:
            self.values += part.count(b",")
            self.opened += part.count(b"[") + part.count(b"{")
            self.keys += part.count(b":")
            if len(part) > DIGITS and _LONG_NUMBER.search(part):
                self.long_number = True
        self._inside ^= len(parts) % 2 == 0

    def too_much(self, values: int, opened: int = OPENED, keys: int = KEYS) -> Refusal | None:
        """Return why the JSON is not read any further, if so."""
        if self.values > values or self.opened > opened or self.keys > keys:
            most = f"{values} values, {opened} lists and objects, and {keys} names in them"
            return Refusal(f"a body may have {most}, and this one has more", 413)
        if self.long_number:
            return Refusal(f"a number in the body has more than {DIGITS} digits")
        return None


@dataclass
class Bodies:
    """The bodies that a server holds."""

    limits: RequestLimits
    window: int
    folded: bool = False
    """Whether a body may be longer than the window: what does not fit is read into a memory."""
    held: int = 0
    """Bytes of all of them."""

    @property
    def values(self) -> int:
        """Values that a body may have: tokens of some prompts, or of one that fills a window."""
        if self.folded:
            return max(self.limits.values, FOLDED)
        return max(self.limits.values, self.window + (1 << 10))

    @property
    def size(self) -> int:
        """Bytes that a body may have; a prompt that fills the window takes fewer."""
        if self.folded:
            return self.limits.body_bytes
        return min(self.limits.body_bytes, max(LEAST, TOKEN_BYTES * self.window))

    @property
    def _nested(self) -> tuple[int, int]:
        return (FOLDED, FOLDED) if self.folded else (OPENED, KEYS)

    @contextmanager
    def holding(self) -> Iterator[list[int]]:
        """Count the bytes that are put into the list for as long as the block runs."""
        own: list[int] = []
        try:
            yield own
        finally:
            self.held -= sum(own)

    async def read(
        self, pieces: AsyncIterator[bytes], announced: str | None, own: list[int]
    ) -> bytes:
        """Return a whole body, or refuse it as early as its length and shape allow.

        One that is too long for the window is taken to its end, but not kept: a client that is
        still writing would not see the answer.
        """
        most = self.limits.body_bytes
        coming = int(announced[:20]) if announced is not None and announced.isdecimal() else 0
        if coming > most:
            raise self._too_large()
        body, shape, size = bytearray(), JsonShape(), 0
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for piece in pieces:
                    size += len(piece)
                    if size > most:
                        raise self._too_large()
                    if max(size, coming) > self.size:
                        body.clear()
                        continue
                    if self.held + len(piece) > HELD * most:
                        raise busy("the server holds as many requests as it has memory for")
                    own.append(len(piece))
                    self.held += len(piece)
                    body += piece
                    shape.feed(piece)
                    if wrong := shape.too_much(self.values, *self._nested):
                        raise wrong
        except TimeoutError:
            seconds = f"{self.limits.body_seconds:g}"
            raise Refusal(f"the body was not there after {seconds} s", 408) from None
        if size > self.size:
            raise too_long_text(size, "bytes", self.window)
        return bytes(body)

    def _too_large(self) -> Refusal:
        return Refusal(f"the body has more than {self.limits.body_bytes} bytes", 413)

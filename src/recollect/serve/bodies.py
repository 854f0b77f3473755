"""Read a request's body within limits: bytes, seconds, and how much JSON is in it.

What a body would become in memory is counted while its bytes come, before any of it is parsed.
Knows nothing of what the requests mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from recollect.serve.refusal import Refusal, busy
from recollect.serve.settings import RequestLimits

OPENED = 1 << 14
"""Lists and objects in one body."""
HELD = 4
"""Bodies of full size that may be in memory at once; many small ones fit in their place."""


@dataclass
class JsonShape:
    """Counts the values, lists and objects of JSON that comes in pieces."""

    values: int = 0
    opened: int = 0
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
        self._inside ^= len(parts) % 2 == 0


@dataclass
class Bodies:
    """The bodies that a server holds."""

    limits: RequestLimits
    window: int
    held: int = 0
    """Bytes of all of them."""

    @property
    def values(self) -> int:
        """Values that a body may have: tokens of some prompts, or of one that fills a window."""
        return max(self.limits.values, self.window + (1 << 10))

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
        """Return a whole body, or refuse it as early as its length and shape allow."""
        most = self.limits.body_bytes
        if announced is not None and announced.isdecimal() and int(announced[:20]) > most:
            raise self._too_large()
        body, shape = bytearray(), JsonShape()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for piece in pieces:
                    if len(body) + len(piece) > most:
                        raise self._too_large()
                    if self.held + len(piece) > HELD * most:
                        raise busy("the server holds as many requests as it has memory for")
                    own.append(len(piece))
                    self.held += len(piece)
                    body += piece
                    shape.feed(piece)
                    if shape.values > self.values or shape.opened > OPENED:
                        what = f"{self.values} values and {OPENED} lists and objects"
                        raise Refusal(f"a body may have {what}, and this one has more", 413)
        except TimeoutError:
            seconds = f"{self.limits.body_seconds:g}"
            raise Refusal(f"the body was not there after {seconds} s", 408) from None
        return bytes(body)

    def _too_large(self) -> Refusal:
        return Refusal(f"the body has more than {self.limits.body_bytes} bytes", 413)

"""Who is let in, and who has to wait: every request reserves its choices before any work is done.

Heavy choices (long ones, and those of requests that ask for many) take a share of the engine's
places, so that a short chat always finds one. Knows nothing of HTTP or of models.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from recollect.serve.refusal import Refusal, busy
from recollect.types import Sampling

LIGHT_TOKENS = 512
"""Tokens of a light choice, prompt and reply together."""
LIGHT_CHOICES = 4
"""Choices of a request with light ones."""


class Admission:
    """The places of one server."""

    def __init__(self, most: int, running: int) -> None:
        self.most = most
        self.in_flight = 0
        """Choices being made or waiting."""
        self._heavy = asyncio.Semaphore(max(1, running * 3 // 4))
        self._share = max(1, running // 4)
        """Places that one request may take."""

    @contextmanager
    def admitted(self, choices: int) -> Iterator[None]:
        """Reserve choices while they are prepared and made; refuse what would be too many."""
        if choices > self.most:
            raise Refusal(f"a request may ask for {self.most} choices, not {choices}", param="n")
        if self.in_flight + choices > self.most:
            raise busy(f"the server is busy with {self.in_flight} requests")
        self.in_flight += choices
        try:
            yield
        finally:
            self.in_flight -= choices

    def turns(self, choices: int) -> Turns:
        """Return what the choices of one request wait for."""
        return Turns(self._heavy, asyncio.Semaphore(self._share), choices > LIGHT_CHOICES)


class Turns:
    """The turns of one request's choices."""

    def __init__(self, heavy: asyncio.Semaphore, own: asyncio.Semaphore, many: bool) -> None:
        self._heavy, self._own, self._many = heavy, own, many

    @asynccontextmanager
    async def turn(self, prompt: int, sampling: Sampling) -> AsyncIterator[bool]:
        """Wait until a choice may be made; say whether it is a light one."""
        if not self._many and prompt + sampling.max_tokens <= LIGHT_TOKENS:
            yield True
            return
        async with self._own, self._heavy:
            yield False

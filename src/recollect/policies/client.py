"""A client for one OpenAI-compatible server: patient, limited, and honest about failures.

Every failed attempt is counted by kind. Failures that may pass (no connection, 429, 5xx) are tried
again; others fail at once. When connections keep failing and the server does not answer a question
about itself either, the run ends with a `UserError`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from recollect.errors import UserError, on_stderr
from recollect.foreign import has_credentials, redact, short_json
from recollect.policies.failures import (
    BadReply,
    EndpointError,
    RateLimited,
    ServerError,
    TimedOut,
    checked,
)
from recollect.policies.http import Dropped, Slow, Unreachable, Wire, WireError
from recollect.policies.http_reader import MAX_BODY
from recollect.seeds import derive

T = TypeVar("T")

Speech = Literal["auto", "tokens", "messages"]
"""How a server is spoken to: auto takes tokens where it takes and tells them."""


@dataclass(frozen=True)
class Endpoint:
    """Where a model is served, and how patiently it is asked."""

    url: str
    """Such as http://localhost:8000/v1"""
    model: str = ""
    """Empty takes the only model that the server lists."""
    api_key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; servers without keys need none."""
    timeout: float = 300.0
    """Seconds for one attempt."""
    connect_timeout: float = 10.0
    retries: int = 5
    """After failures that may pass: no connection, 429, 5xx."""
    backoff: float = 0.5
    """Seconds before the first retry, doubled for each further one, less up to half by chance."""
    concurrency: int = 256
    """Requests in flight at once."""
    breaker: int = 8
    """Connections that must fail in a row before the server is asked whether it is there."""
    grace: float = 30.0
    """Seconds it then has to come back before the run is stopped."""

    def __post_init__(self) -> None:
        if not is_address(self.url):
            raise UserError(
                f"{self.url!r} is not the address of a server",
                "write it like http://localhost:8000/v1",
            )
        if has_credentials(self.url):
            raise UserError(
                f"the address {self.url} carries a password or a key, and addresses are written"
                " down",
                f"leave it out, and put the key into the environment variable {self.api_key_env}",
            )
        if self.concurrency < 1 or self.retries < 0 or min(self.timeout, self.connect_timeout) <= 0:
            raise UserError(
                "an endpoint needs a concurrency of at least 1, retries of at least 0, and timeouts"
                " above 0",
                "set these settings of the endpoint",
            )


def is_address(url: str) -> bool:
    """Tell the address of a server from any other text."""
    if not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port, or of brackets
        return False


RETRIED = (WireError, RateLimited, ServerError)
LONG_WAIT = 10.0
"""Seconds of a wait from which on it is said on the screen."""
WORDS_APART = 60.0
"""Seconds between two such words."""


class Client:
    """Calls to one server. Its connections belong to the event loop that it is used in."""

    def __init__(self, endpoint: Endpoint, retried: tuple[type[Exception], ...] = RETRIED) -> None:
        self.endpoint = endpoint
        self.retried = retried
        self.calls = 0
        self.in_flight = 0
        """Calls without an answer yet, those that wait for a slot or a retry included."""
        self.failures: Counter[str] = Counter()
        """Failed attempts by kind; a call that succeeds in the end may have had some."""
        self.tokens: Counter[str] = Counter()
        """Tokens that the server says it read and wrote."""
        self._live: _Live | None = None
        self._lost = 0
        """Connections that failed since something was last heard of the server."""
        self._gone: UserError | None = None
        self._said = -WORDS_APART

    @cached_property
    def _key(self) -> str:
        name = self.endpoint.api_key_env
        key = os.environ.get(name, "").strip()
        if not (key.isascii() and key.isprintable()):
            raise UserError(
                f"the key in the environment variable {name} has characters that cannot be sent",
                "set it again: a key has only printable ASCII characters",
            )
        return key

    async def post(
        self,
        path: str,
        body: dict[str, Any],
        read: Callable[[dict[str, Any]], T],
        seed: int = 0,
        limit: int = MAX_BODY,
    ) -> T:
        """Send a request, and `read` the answer, which has at most `limit` bytes.

        The seed decides how long retries wait.
        """
        self.calls += 1
        self.in_flight += 1
        try:
            return await self._patiently("POST", path, short_json(body), read, seed, limit)
        finally:
            self.in_flight -= 1

    async def first_model(self) -> str:
        """Return the name of the first model that the server lists."""

        def read(answer: dict[str, Any]) -> str:
            match answer.get("data"):
                case [{"id": str(name)}, *_]:
                    return name
                case []:
                    url = self.endpoint.url
                    raise UserError(f"{url} serves no model", "start the server with a model")
            raise BadReply("there is no list of models")

        return await self._patiently("GET", "/models", None, read, 0)

    async def _patiently(
        self,
        method: str,
        path: str,
        data: bytes | None,
        read: Callable[[dict[str, Any]], T],
        seed: int,
        limit: int = MAX_BODY,
    ) -> T:
        attempt = 0
        while True:
            try:
                return read(await self._once(method, path, data, limit=limit))
            except (WireError, EndpointError) as error:
                self.failures[type(error).__name__] += 1
                if isinstance(error, Unreachable | Dropped | TimedOut):
                    await self._check_there()
                if attempt >= self.endpoint.retries or not isinstance(error, self.retried):
                    raise
                wait = self._wait(error, attempt, seed)
                self._say_long(wait, error)
            attempt += 1
            await asyncio.sleep(wait)

    async def get(self, path: str, timeout: float | None = None) -> dict[str, Any]:
        """Ask once."""
        return await self._once("GET", path, None, timeout)

    async def _once(
        self,
        method: str,
        path: str,
        data: bytes | None,
        timeout: float | None = None,
        limit: int = MAX_BODY,
    ) -> dict[str, Any]:
        if self._gone is not None:
            raise self._gone
        live = self._connections()
        seconds = timeout or self.endpoint.timeout
        async with live.slots if method == "POST" else live.open:
            try:
                response = await live.wire.send(
                    method, path, data, self._key, seconds=seconds, limit=limit
                )
            except Slow as error:
                self._lost += 1
                raise TimedOut(str(error)) from None
            except (Unreachable, Dropped):
                self._lost += 1
                raise
        self._lost = 0
        return checked(response)

    def _wait(self, error: Exception, attempt: int, seed: int) -> float:
        endpoint = self.endpoint
        asked = error.retry_after if isinstance(error, EndpointError) else 0.0
        chance = derive("retry", seed, attempt) / (1 << 63)
        own = endpoint.backoff * 2**attempt * (1 - chance / 2)
        # Never earlier than asked, and not all who were told the same at the same moment.
        return max(own, min(asked, endpoint.timeout) * (1 + chance / 4))

    def _say_long(self, wait: float, error: Exception) -> None:
        now = time.monotonic()
        if wait >= LONG_WAIT and now - self._said >= WORDS_APART:
            self._said = now
            url = self.endpoint.url
            on_stderr(redact(f"{url} answers {error}; it is asked again in {wait:.0f} s"))

    async def _check_there(self) -> None:
        """End the run if connections keep failing and the server does not answer either."""
        endpoint = self.endpoint
        if self._lost < endpoint.breaker:
            return
        async with self._connections().asking:  # one asks, the others wait for what it hears
            ends = time.monotonic() + endpoint.grace
            while self._lost >= endpoint.breaker and self._gone is None:
                try:
                    await self.get("/models", endpoint.connect_timeout)
                except EndpointError as error:
                    if not isinstance(error, TimedOut):
                        return  # whatever it says, it is there
                except WireError:
                    pass
                if self._lost >= endpoint.breaker and time.monotonic() >= ends:
                    self._gone = gone(endpoint)
                elif self._lost >= endpoint.breaker:
                    await asyncio.sleep(min(1.0, endpoint.grace / 10))
        if self._gone is not None:
            raise self._gone

    def _connections(self) -> _Live:
        loop = asyncio.get_running_loop()
        if self._live is None or self._live.loop is not loop:
            self._live = _Live(loop, self.endpoint)
        return self._live

    def close(self) -> None:
        """Close the connections; the client can be used again."""
        if self._live is not None:
            self._live.wire.close()
            self._live = None


class _Live:
    """What belongs to one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, endpoint: Endpoint) -> None:
        self.loop = loop
        self.wire = Wire(endpoint.url, endpoint.connect_timeout)
        self.slots = asyncio.Semaphore(endpoint.concurrency)
        self.open = asyncio.Semaphore(1 << 20)
        """Questions about the server itself must not wait behind calls."""
        self.asking = asyncio.Lock()


def gone(endpoint: Endpoint) -> UserError:
    """Say that a server is no longer there."""
    return UserError(
        f"the server at {endpoint.url} is gone: {endpoint.breaker} connections failed in a row, and"
        f" it did not come back in {endpoint.grace:g} s",
        "start it again, then run the same command: the run continues from its last checkpoint",
    )

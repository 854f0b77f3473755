"""Kept-alive HTTP/1.1 connections to one server, in one event loop.

General HTTP clients spend one to two milliseconds of CPU on a request and more the more are in
flight, which a rollout with hundreds of short calls feels; this one sends JSON and reads JSON, and
knows nothing of proxies, redirects, cookies or compression. Whatever goes wrong is a `WireError`.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import lru_cache
from typing import cast
from urllib.parse import quote, urlsplit

from recollect.policies.http_reader import MAX_BODY, NotHttp, Response, ResponseReader, WireError

__all__ = ["Dropped", "NotHttp", "Response", "Slow", "Unreachable", "Wire", "WireError"]


class Unreachable(WireError):
    """No connection could be made."""


class Dropped(WireError):
    """The connection ended before the response did."""


class Slow(WireError):
    """The response was not whole in time."""


class Wire:
    """Connections to the server of a URL. As many are open as requests are in flight."""

    def __init__(self, url: str, connect_timeout: float = 10.0) -> None:
        parts = urlsplit(url)
        self.host = parts.hostname or ""
        self.secure = parts.scheme == "https"
        self.port = parts.port or (443 if self.secure else 80)
        self.base = parts.path.rstrip("/")
        self.connect_timeout = connect_timeout
        self._shown_host = parts.netloc.rpartition("@")[2]
        self._tls = ssl.create_default_context() if self.secure else None
        self._idle: list[_Connection] = []
        self._heads: dict[tuple[str, str, str], bytes] = {}
        """The lines that all requests to a path share."""

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        key: str = "",
        *,
        seconds: float = 300.0,
        limit: int = MAX_BODY,
    ) -> Response:
        """Send a request and return the whole response; `key` authorises it.

        All of it, connecting and writing included, takes at most `seconds`, and the response's body
        has at most `limit` bytes.
        """
        message = self._head(method, path, body, key) + (body or b"")
        ends = asyncio.get_running_loop().time() + seconds
        try:
            return await self._exchange(message, limit, ends)
        except TimeoutError:
            raise Slow(f"no whole answer in {seconds:g} s") from None

    def _head(self, method: str, path: str, body: bytes | None, key: str) -> bytes:
        head = self._heads.get((method, path, key))
        if head is None:
            lines = [
                f"{method} {_target(self.base + path)} HTTP/1.1",
                f"Host: {self._shown_host}",
                "Accept: application/json",
                "Accept-Encoding: identity",
                "User-Agent: recollect",
                *([f"Authorization: Bearer {key}"] if key else []),
            ]
            head = self._heads[method, path, key] = "\r\n".join([*lines, ""]).encode("latin-1")
        if body is None:
            return head + b"\r\n"
        return head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)

    async def _exchange(self, message: bytes, limit: int, ends: float) -> Response:
        while True:
            connection, fresh = self._waiting(), False
            if connection is None:
                async with asyncio.timeout_at(ends):
                    connection, fresh = await self._connect(), True
            try:
                response = await connection.ask(message, limit, ends)
            except Dropped:
                # A server may close an idle connection at any time; that is nobody's failure.
                if fresh or connection.answering:
                    raise
                continue
            if connection.reusable:
                self._idle.append(connection)
            return response

    def _waiting(self) -> _Connection | None:
        """Take a connection that waits for use, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.connect_timeout):
                _, made = await loop.create_connection(
                    _Connection, self.host, self.port, ssl=self._tls
                )
        except TimeoutError:
            raise Unreachable(
                f"{self.host}:{self.port} did not accept in {self.connect_timeout:g} s"
            ) from None
        except (OSError, UnicodeError) as error:  # the latter for a name that no host can have
            raise Unreachable(f"{self.host}:{self.port}: {error}") from None
        return made

    def close(self) -> None:
        """Close the connections that wait for use."""
        while self._idle:
            self._idle.pop().close()


@lru_cache
def _target(path: str) -> str:
    return quote(path, safe="/%:@!$&()*+,;=~")


class _Connection(asyncio.Protocol):
    """One request at a time, and its response."""

    def __init__(self) -> None:
        self.open = False
        self.reusable = False
        self._transport: asyncio.Transport | None = None
        self._reader = ResponseReader()
        self._answer: asyncio.Future[Response] | None = None
        self._ends = 0.0
        self._timer: asyncio.TimerHandle | None = None
        """Rings when an answer is due. It is left for the next one: setting one takes as long as
        sending a request."""

    @property
    def answering(self) -> bool:
        """Whether anything of the response has come."""
        return self._reader.begun

    async def ask(self, message: bytes, limit: int, ends: float) -> Response:
        """Send a request and wait for its response, until the loop's clock shows `ends`."""
        assert self._transport is not None
        self._reader = ResponseReader(limit)
        self.reusable = False
        self._answer = asyncio.get_running_loop().create_future()
        if not self.open:
            raise Dropped("the server had closed the connection")
        self._wake_at(ends)
        self._transport.write(message)
        try:
            return await self._answer
        finally:
            self._answer = None
            if not self.reusable:
                self._transport.abort()

    def _wake_at(self, ends: float) -> None:
        self._ends = ends
        if self._timer is not None and self._timer.when() > ends:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(ends, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._answer is None or self._answer.done():
            return
        if asyncio.get_running_loop().time() < self._ends:  # it was set for an earlier request
            self._wake_at(self._ends)
        else:
            self._answer.set_exception(TimeoutError())

    def close(self) -> None:
        """Let go of the server."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.open = True

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if self._timer is not None:
            self._timer.cancel()
        if self._answer is None or self._answer.done():
            return
        response = None if error else self._reader.end()
        if response is not None:
            self._answer.set_result(response)
        else:
            why = str(error) if error else "the server closed the connection"
            self._answer.set_exception(Dropped(why))

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # nobody asked: what follows would be taken for the next response
            return
        try:
            response = self._reader.feed(data)
        except NotHttp as error:
            self._answer.set_exception(error)
            return
        if response is not None:
            self.reusable = self._reader.reusable and self.open
            self._answer.set_result(response)

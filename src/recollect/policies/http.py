"""Kept-alive HTTP/1.1 connections to one server, in one event loop.

General HTTP clients spend one to two milliseconds of CPU on a request and more the more are in
flight, which a rollout with hundreds of short calls feels; this one sends JSON and reads JSON, and
knows nothing of proxies, redirects, cookies or compression. Whatever goes wrong is a `WireError`.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

MAX_HEAD = 1 << 16
MAX_BODY = 1 << 28


class WireError(Exception):
    """A response did not come, or not whole."""


class Unreachable(WireError):
    """No connection could be made."""


class Dropped(WireError):
    """The connection ended before the response did."""


class NotHttp(WireError):
    """What came is no HTTP response."""


@dataclass(frozen=True)
class Response:
    """What a server answered."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


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

    async def send(
        self, method: str, path: str, body: bytes | None = None, key: str = ""
    ) -> Response:
        """Send a request and return the whole response; `key` authorises it."""
        size = len(body or b"")
        lines = [
            f"{method} {self.base}{path} HTTP/1.1",
            f"Host: {self._shown_host}",
            "Accept: application/json",
            "User-Agent: recollect",
        ]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {size}"]
        if key:
            lines.append(f"Authorization: Bearer {key}")
        message = "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")
        while True:
            connection, fresh = await self._connection()
            try:
                response = await connection.ask(message)
            except Dropped:
                # A server may close an idle connection at any time; that is nobody's failure.
                if fresh or connection.answering:
                    raise
                continue
            if connection.reusable:
                self._idle.append(connection)
            return response

    async def _connection(self) -> tuple[_Connection, bool]:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection, False
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
        except OSError as error:
            raise Unreachable(f"{self.host}:{self.port}: {error}") from None
        return made, True

    def close(self) -> None:
        """Close the connections that wait for use."""
        while self._idle:
            self._idle.pop().close()


class _Connection(asyncio.Protocol):
    """One request at a time, and its response."""

    def __init__(self) -> None:
        self.open = False
        self.answering = False
        """Whether anything of the response has come."""
        self.reusable = False
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._head: tuple[int, dict[str, str]] | None = None
        self._left: int | None = None
        """Bytes of the body, or None if it goes on to a mark or to the connection's end."""
        self._chunked = False
        self._at = 0
        """Where, in the data, the next chunk starts."""
        self._body = bytearray()
        self._answer: asyncio.Future[Response] | None = None

    async def ask(self, message: bytes) -> Response:
        """Send a request and wait for its response."""
        assert self._transport is not None
        self._data.clear()
        self._body.clear()
        self._head, self._left, self._chunked, self._at = None, None, False, 0
        self.answering = self.reusable = False
        self._answer = asyncio.get_running_loop().create_future()
        if not self.open:
            raise Dropped("the server had closed the connection")
        self._transport.write(message)
        try:
            return await self._answer
        finally:
            self._answer = None
            if not self.reusable:
                self._transport.abort()

    def close(self) -> None:
        """Let go of the server."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.open = True

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if self._answer is None or self._answer.done():
            return
        to_the_end = self._head is not None and self._left is None and not self._chunked
        if to_the_end and error is None:
            self._finish(bytes(self._data), reusable=False)
        else:
            self._fail(Dropped(str(error) if error else "the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # nobody asked: what follows would be taken for the next response
            return
        self.answering = True
        self._data += data
        try:
            if self._head is None and not self._read_head():
                return
            self._read_body()
        except (ValueError, IndexError) as error:
            self._fail(NotHttp(f"the response cannot be read: {error}"))

    def _read_head(self) -> bool:
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            first, *lines = self._data[:end].decode("latin-1").split("\r\n")
            del self._data[: end + 4]
            version, status, *_ = first.split(" ", 2)
            if not version.startswith("HTTP/1."):
                raise ValueError(f"it begins with {first[:40]!r}")
            if status.startswith("1"):
                continue  # only an announcement
            headers = {}
            for line in lines:
                name, _, value = line.partition(":")
                headers[name.strip().lower()] = value.strip()
            self._head = int(status), headers
            self._chunked = headers.get("transfer-encoding", "").lower().endswith("chunked")
            if not self._chunked and "content-length" in headers:
                self._left = int(headers["content-length"])
                if not 0 <= self._left <= MAX_BODY:
                    raise ValueError(f"its length is {self._left}")
            elif status in ("204", "304"):
                self._left = 0
            return True
        if len(self._data) > MAX_HEAD:
            raise ValueError("its head does not end")
        return False

    def _read_body(self) -> None:
        if self._chunked:
            self._read_chunks()
        elif self._left is not None and len(self._data) >= self._left:
            self._finish(bytes(self._data[: self._left]), len(self._data) == self._left)
        if len(self._data) + len(self._body) > MAX_BODY:
            raise ValueError("it does not end")

    def _read_chunks(self) -> None:
        while (line := self._data.find(b"\r\n", self._at)) >= 0:
            size = int(self._data[self._at : line].split(b";")[0], 16)
            start, end = line + 2, line + 2 + size
            if size == 0:
                # What may stand between the last chunk and the empty line is of no use here.
                stop = start if self._data.startswith(b"\r\n", start) else -1
                stop = stop if stop >= 0 else self._data.find(b"\r\n\r\n", start) + 2
                if stop >= start:
                    self._finish(bytes(self._body), len(self._data) == stop + 2)
                return
            if len(self._data) < end + 2:
                return
            if not self._data.startswith(b"\r\n", end):
                raise ValueError("a chunk does not end where it says")
            self._body += self._data[start:end]
            self._at = end + 2

    def _finish(self, body: bytes, reusable: bool) -> None:
        assert self._head is not None and self._answer is not None
        status, headers = self._head
        self.reusable = reusable and headers.get("connection", "").lower() != "close" and self.open
        self._answer.set_result(Response(status, headers, body))

    def _fail(self, error: WireError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

"""A request to another server whose answer is read as it comes. One connection for each request."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, urlsplit

import h11

from recollect.policies.http import Dropped, NotHttp, Slow, Unreachable

READ = 1 << 14
"""Bytes that are taken from a server before others have their turn."""
MAX_BODY = 1 << 26


@dataclass
class Streamed:
    """An answer that is still coming."""

    status: int
    headers: dict[str, str]
    pieces: AsyncGenerator[bytes, None]

    async def whole(self, limit: int = MAX_BODY) -> bytes:
        """Return all of it, if it is not longer than the limit."""
        body = bytearray()
        async for piece in self.pieces:
            body += piece
            if len(body) > limit:
                raise NotHttp(f"the answer has more than {limit} bytes")
        return bytes(body)


@asynccontextmanager
async def posted(
    url: str, path: str, body: bytes, key: str, seconds: float, connect_seconds: float = 10.0
) -> AsyncIterator[Streamed]:
    """Send JSON and yield the answer.

    Its head, and then each piece, must come within `seconds`.
    """
    parts = urlsplit(url)
    reader, writer = await _connected(parts, connect_seconds)
    try:
        connection = h11.Connection(h11.CLIENT)
        writer.write(_written(connection, parts, path, body, key))
        pieces = _events(reader, connection, seconds)
        async with in_time(seconds):  # any number of interim answers may come before the head
            await writer.drain()
            head = await anext(pieces)
        assert isinstance(head, h11.Response)
        named = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in head.headers
        }
        data = _data(pieces)
        try:
            yield Streamed(head.status_code, named, data)
        finally:
            await data.aclose()
    except (ConnectionError, OSError) as error:
        raise Dropped(str(error)) from None
    finally:
        writer.close()
        with suppress(Exception):  # it may be gone already
            writer.transport.abort()


async def _connected(
    parts: SplitResult, seconds: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    secure = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if secure else 80)
    try:
        async with asyncio.timeout(seconds):
            tls = ssl.create_default_context() if secure else None
            return await asyncio.open_connection(host, port, ssl=tls)
    except TimeoutError:
        raise Unreachable(f"{host}:{port} did not accept in {seconds:g} s") from None
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"{host}:{port}: {error}") from None


def _written(
    connection: h11.Connection, parts: SplitResult, path: str, body: bytes, key: str
) -> bytes:
    """Return a request as it is sent."""
    headers = [
        ("Host", parts.netloc.rpartition("@")[2]),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("Accept", "application/json, text/event-stream"),
        ("Accept-Encoding", "identity"),
        ("User-Agent", "recollect"),
        ("Connection", "close"),
        *([("Authorization", f"Bearer {key}")] if key else []),
    ]
    target = quote(parts.path.rstrip("/") + path, safe="/%:@!$&()*+,;=~")
    request = h11.Request(method="POST", target=target, headers=headers)
    sent = [request, h11.Data(data=body), h11.EndOfMessage()]
    return b"".join(connection.send(event) or b"" for event in sent)


@asynccontextmanager
async def in_time(seconds: float) -> AsyncIterator[None]:
    """Give up if the block takes longer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Slow(f"it took more than {seconds:g} s") from None


async def _events(
    reader: asyncio.StreamReader, connection: h11.Connection, seconds: float
) -> AsyncGenerator[h11.Event, None]:
    """Yield the response's head, then its data."""
    try:
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                async with in_time(seconds):
                    await asyncio.sleep(0)  # what is there already would be read without a pause
                    data = await reader.read(READ)
                if not data and connection.their_state is h11.SEND_RESPONSE:
                    raise Dropped("the server closed the connection")
                connection.receive_data(data)
            elif isinstance(event, h11.Response | h11.Data):
                yield event
            elif isinstance(event, h11.EndOfMessage):
                return
            elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                raise Dropped("the server closed the connection")
    except h11.RemoteProtocolError as error:
        raise NotHttp(str(error)) from None


async def _data(pieces: AsyncGenerator[h11.Event, None]) -> AsyncGenerator[bytes, None]:
    try:
        async for event in pieces:
            if isinstance(event, h11.Data):
                yield bytes(event.data)
    finally:
        await pieces.aclose()

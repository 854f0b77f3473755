"""Connections that cannot be held for nothing: time limits, and a cap at which the idlest go.

A client has some seconds to send a request's head and to take what it is sent. At the cap a new
connection takes the place of the one that has been without a request the longest. What one
connection costs in a round of the event loop is bounded too.
"""

from __future__ import annotations

import asyncio
import resource
from contextlib import suppress
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from recollect.serve.settings import RequestLimits

KEPT_ALIVE = 75
"""Seconds before a connection without requests is closed. Clients (httpx, and so openai's) give
theirs up after 5: a server that closes at the same moment loses their next request."""
SPARE_FILES = 64
"""Open files that are not connections."""
READ = 1 << 14
"""Bytes taken from a connection before the others have their turn."""
CHUNKS, CHUNK_BYTES = 256, 16
"""Chunks that a body may come in, and bytes for each one more: a chunk takes h11 as long as a
thousand bytes do."""
TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 0\r\n\r\n"
)


def connection_type(limits: RequestLimits) -> type[H11Protocol]:
    """Return the class of a server's connections."""
    most = min(limits.connections, raise_file_limit(limits.connections + SPARE_FILES) - SPARE_FILES)
    own = {"limits": limits, "most": max(1, most), "by_age": {}}
    return type("LimitedConnection", (_Connection,), own)


def raise_file_limit(wanted: int) -> int:
    """Let this process open as many files as are wanted, if it may; return how many it can."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError):
        return soft
    return allowed


class _CountedChunks(h11.Connection):
    """Refuses a body that comes in far more chunks than it has reason to."""

    _chunks = _body = 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._body = 0
            self._chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
        elif isinstance(event, h11.Data) and self._chunked:
            self._chunks += 1
            self._body += len(event.data)
            if self._chunks > CHUNKS + self._body // CHUNK_BYTES:
                raise h11.RemoteProtocolError("the chunks of the body are too small")
        return event


class _Connection(H11Protocol):
    limits: ClassVar[RequestLimits] = RequestLimits()
    most: ClassVar[int] = 1024
    by_age: ClassVar[dict[_Connection, None]] = {}
    """All connections, the one that has been without a request the longest first."""
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _body_timer: asyncio.TimerHandle | None = None
    _answered: Any
    """The transport of answers, an `_Answered`."""
    _turned_away = False
    _refused = -1
    """Bytes that a client has sent since it was refused; -1 before that."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn = _CountedChunks(h11.SERVER, self.config.h11_max_incomplete_event_size or READ)

    @property
    def _idle(self) -> bool:
        """Whether no whole request of this connection waits for its answer."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.by_age) >= self.most and not self._make_room():
            self._turned_away = True
            transport.abort()
            return
        with suppress(AttributeError):  # asyncio's own transports have it
            transport.max_size = READ  # type: ignore[attr-defined]
        self.by_age[self] = None
        super().connection_made(transport)
        self._answered = _Answered(self, transport)
        self._expect_head()

    def _make_room(self) -> bool:
        oldest = next((connection for connection in self.by_age if connection._idle), None)
        if oldest is None:
            return False
        del self.by_age[oldest]
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._write_timer, self._body_timer):
            if timer:
                timer.cancel()
        self.by_age.pop(self, None)
        if not self._turned_away:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._turned_away:
            return
        if self._refused >= 0:
            self._refused += len(data)
            if self._refused > self.limits.body_bytes:
                self.transport.abort()
            return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._expect_head()
        elif self._head_timer:
            self._head_timer.cancel()
            self._head_timer = None

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, unless an answer has begun; what was under way is dropped."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None:
            self.cycle.transport = self._answered

    @property
    def sends_on(self) -> bool:
        """Whether the client has its answer and still sends the body."""
        done = self.cycle is not None and self.cycle.response_complete
        return done and self.conn.their_state is h11.SEND_BODY

    def on_response_complete(self) -> None:
        if self.by_age.pop(self, self) is None:
            self.by_age[self] = None  # the youngest now
        super().on_response_complete()
        if self.sends_on and not self.transport.is_closing():
            self._throw_away_the_body()

    def _throw_away_the_body(self) -> None:
        """Let a client that was refused before its body was read send it, and then close.

        Closed under a body that is on its way, the connection would be reset, and the client would
        not see why it was refused.
        """
        self._unset_keepalive_if_required()
        self._refused = 0
        self.transport.write_eof()
        self._body_timer = self.loop.call_later(self.limits.body_seconds, self.transport.abort)

    def _expect_head(self) -> None:
        """Give the client the time that a head may take, counted from its first byte."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.head_seconds, self._head_late)

    def _head_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.write(TOO_SLOW)
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer:
            self._write_timer.cancel()
            self._write_timer = None


class _Answered:
    """The transport as the answer sees it, which closes it after a request's `Connection: close`.

    A client that still sends the body would not see its answer then.
    """

    def __init__(self, connection: _Connection, transport: asyncio.Transport) -> None:
        self._connection = connection
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        if not self._connection.sends_on:
            self._transport.close()

"""Connections that cannot be held for nothing: time limits, and a cap at which the idlest go.

A client has some seconds to send a request's head and to take what it is sent. At the cap a new
connection takes the place of the one that has been without a request the longest.
"""

from __future__ import annotations

import asyncio
import resource
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from recollect.serve.settings import RequestLimits

SPARE_FILES = 64
"""Open files that are not connections."""
TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 0\r\n\r\n"
)


def connection_type(limits: RequestLimits) -> type[H11Protocol]:
    """Return the class of a server's connections."""
    most = min(limits.connections, raise_file_limit(limits.connections + SPARE_FILES) - SPARE_FILES)
    return type("LimitedConnection", (_Connection,), {"limits": limits, "most": max(1, most)})


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


class _Connection(H11Protocol):
    limits: ClassVar[RequestLimits] = RequestLimits()
    most: ClassVar[int] = 1024
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _idle_since = 0.0
    _turned_away = False

    @property
    def _idle(self) -> bool:
        """Whether no whole request of this connection waits for its answer."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._idle_since = self.loop.time()
        if len(self.connections) >= self.most and not self._make_room():
            self._turned_away = True
            transport.abort()
            return
        super().connection_made(transport)
        self._expect_head()

    def _make_room(self) -> bool:
        idle = [c for c in self.connections if isinstance(c, _Connection) and c._idle]
        if not idle:
            return False
        oldest = min(idle, key=lambda connection: connection._idle_since)
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._write_timer):
            if timer:
                timer.cancel()
        if not self._turned_away:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._turned_away:
            return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._expect_head()
        elif self._head_timer:
            self._head_timer.cancel()
            self._head_timer = None

    def on_response_complete(self) -> None:
        self._idle_since = self.loop.time()
        if self.conn.their_state is h11.SEND_BODY:  # refused before it was read: nobody wants it
            self.transport.close()
        super().on_response_complete()

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

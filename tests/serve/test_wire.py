"""Whatever bytes a connection brings, a server answers or hangs up, and its log stays empty."""

from __future__ import annotations

import asyncio
import gzip
import logging
import random
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from recollect.serve.refusal import Refusal
from recollect.serve.server import serving
from recollect.serve.settings import RequestLimits, ServeConfig
from recollect.serve.web import refused
from tests.support.viewing import planted, viewing
from tests.support.wire_fuzz import nearly_http, throw

TRIES = 60
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)
BOMB = gzip.compress(bytes(1 << 22))
CASES = {
    "a bad chunk behind a head that is refused": [
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"-1\r\n{}",
    ],
    "a bad chunk in the same packet": [
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"-1\r\n{}",
    ],
    "a host that is no address": [b"GET /nowhere HTTP/1.1\r\nHost: [\r\n\r\n"],
    "a websocket": [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    ],
    "a length and chunks": [
        POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ],
    "two lengths": [POST + b"Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}" + GET],
    "a length with a sign": [POST + b"Content-Length: +2\r\n\r\n{}" + GET],
    "two codings": [POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + GET],
    "a header that is folded": [b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n"],
    "a space before the colon": [POST + b"Content-Length : 2\r\n\r\n{}"],
    "lines that end with LF alone": [b"GET /health HTTP/1.1\nHost: localhost\n\n"],
    "two hosts": [b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n"],
    "an address as target": [b"GET http://other/health HTTP/1.1\r\nHost: localhost\r\n\r\n"],
    "a tunnel": [b"CONNECT other:80 HTTP/1.1\r\nHost: localhost\r\n\r\n"],
    "a hundred requests in one piece": [GET * 100],
    "a body that is only sent if it is wanted": [
        POST + b"Content-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n",
    ],
    "a packed body": [
        POST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s" % (len(BOMB), BOMB),
    ],
    "trailers without end": [
        POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + b"X-More: 1\r\n" * 9999,
    ],
    "headers without number": [b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n"],
    "HTTP of another time": [b"GET /health\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
}


def all_cases() -> list[tuple[str, list[bytes]]]:
    draws = ((f"seed {i}", nearly_http(random.Random(i))) for i in range(TRIES))
    return [*CASES.items(), *draws]


def attacked(host: str, port: int, honest: list[bytes]) -> None:
    for name, pieces in all_cases():
        reply = throw(host, port, pieces, patience=0.01)
        assert not reply or reply.startswith(b"HTTP/1.1 "), (name, reply[:200])
        for line in reply.split(b"\r\n"):
            assert not line.startswith(b"HTTP/1.1 5"), (name, reply[:500])
    assert throw(host, port, honest, patience=5).startswith(b"HTTP/1.1 200 ")


@pytest.fixture
def calm(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []
    assert "Traceback" not in capsys.readouterr().err  # the web server has a log of its own


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])  # by one name, by any name
def test_whatever_a_connection_brings_serve_stays_calm(model, address, calm):
    async def run() -> None:
        config = ServeConfig("", host=address, port=0, limits=RequestLimits(connections=32))
        async with serving(model, "tiny", config) as server:
            port = urlsplit(server.url).port
            honest = [b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"]
            await asyncio.to_thread(attacked, "127.0.0.1", port, honest)
            assert server.service.in_flight == 0 and server.service.bodies.held == 0

    asyncio.run(run())


@pytest.mark.parametrize("hosts", [True, False])
def test_whatever_a_connection_brings_the_viewer_stays_calm(tmp_path, hosts, calm, monkeypatch):
    if not hosts:
        monkeypatch.setattr("recollect.view.server.LOCAL_NAMES", ())
    with viewing(planted(tmp_path)) as (url, _answers):
        honest = [b"GET /api/state HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"]
        attacked("127.0.0.1", urlsplit(url).port, honest)


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"])
def test_a_client_that_still_sends_its_body_sees_why_it_was_refused(model, more):
    """A connection that is closed under a body is reset: the answer would be lost with it."""

    def refused_under_way(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), 20) as connection:
            connection.sendall(POST + more + b"Content-Length: %d\r\n\r\n{" % (8 << 20))
            assert connection.recv(1, socket.MSG_PEEK)  # refused already
            for _ in range(8):
                connection.sendall(bytes(1 << 20))
            reply = b""
            while block := connection.recv(1 << 16):
                reply += block
            return reply

    async def run() -> None:
        async with serving(model, "tiny", ServeConfig("", port=0), api_key="secret") as server:
            reply = await asyncio.to_thread(refused_under_way, urlsplit(server.url).port)
            assert reply.startswith(b"HTTP/1.1 401 ") and b"API key" in reply

    asyncio.run(run())


def test_what_a_refused_client_sends_has_an_end(model):
    """Its body is thrown away up to the limit of any body, in bytes and in seconds."""
    limits = RequestLimits(body_bytes=1 << 20, body_seconds=0.2)

    def sends_without_end(port: int, piece: bytes) -> None:
        with socket.create_connection(("127.0.0.1", port), 20) as connection:
            head = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\n"
            connection.sendall(head + b"Content-Length: 99999999999\r\n\r\n")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 404 ")
            with pytest.raises(OSError):  # not its own patience, which is longer
                for _ in range(1 << 20):
                    connection.sendall(piece)

    async def run() -> None:
        async with serving(model, "tiny", ServeConfig("", port=0, limits=limits)) as server:
            port = urlsplit(server.url).port
            await asyncio.to_thread(sends_without_end, port, bytes(1 << 16))
            await asyncio.to_thread(sends_without_end, port, b"x")

    asyncio.run(run())


def test_a_refusal_can_repeat_what_no_text_can_hold():
    assert b"\xef\xbf\xbd" in refused(Refusal("there is no \ud800")).body

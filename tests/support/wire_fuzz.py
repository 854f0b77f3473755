"""Bytes that are nearly HTTP: pieces of requests in any order, cut anywhere."""

from __future__ import annotations

import contextlib
import random
import socket

HEADS = (
    b"POST /v1/completions HTTP/1.1\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\n",
    b"POST /api/s/0/whatif HTTP/1.1\r\nX-Recollect: 1\r\n",
    b"GET /health HTTP/1.1\r\n",
    b"GET /%00%ff/..%2f HTTP/1.1\r\n",
    b"GET /api/state?a=%ff&a=[ HTTP/1.0\r\n",
    b"HEAD /v1/models HTTP/1.1\r\n",
    b"CONNECT x:1 HTTP/1.1\r\n",
    b"OPTIONS * HTTP/1.1\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00",
)
FIELDS = (
    *(b"Host: localhost\r\n", b"Host: [\r\n", b"Host: \xff\r\n", b"Host: a\r\nHost: b\r\n"),
    *(b"Content-Type: application/json\r\n", b"Content-Type: \xff;;\r\n"),
    *(b"Content-Length: 5\r\n", b"Content-Length: 99999999999999999999\r\n"),
    *(b"Content-Length: +5\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n"),
    *(b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"Connection: keep-alive\r\n"),
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    *(b"Connection: Upgrade\r\nUpgrade: h2c\r\n", b"Authorization: Bearer \xff\x00\r\n"),
    *(b"X: " + b"a" * 40_000 + b"\r\n", b"no colon\r\n", b" folded\r\n", b": empty\r\n"),
)
BODIES = (
    *(b"{}", b'{"prompt": "a", "max_tokens": 2}', b'{"messages": []}', b"\xff\xfe", b""),
    *(b"5\r\nhello\r\n", b"0\r\n\r\n", b"-1\r\nx\r\n", b"ffffffffffffffff\r\n", b"2;a=b\r\n{}\r\n"),
    *(b"0\r\nTrailer: x\r\n\r\n", b"zz\r\n"),
)


def nearly_http(draw: random.Random) -> list[bytes]:
    """Return what one connection sends, in the pieces that it sends."""
    data = b""
    for _ in range(draw.randint(1, 3)):
        data += draw.choice(HEADS)
        if draw.random() < 0.8:  # half of all others would end at the name of the server
            data += FIELDS[0]
        data += b"".join(draw.sample(FIELDS, draw.randint(0, 3)))
        data += draw.choice([b"\r\n", b"\r\n", b"\r\n", b""])
        data += b"".join(draw.choices(BODIES, k=draw.randint(0, 3)))
    if draw.random() < 0.2:
        at = draw.randrange(len(data))
        data = data[:at] + draw.randbytes(1) + data[at + 1 :]
    cuts = sorted(draw.randrange(len(data) + 1) for _ in range(draw.randint(0, 3)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def throw(host: str, port: int, pieces: list[bytes], patience: float) -> bytes:
    """Send the pieces on a connection of its own; return what comes back within the patience."""
    reply = b""
    with contextlib.suppress(OSError), socket.create_connection((host, port), 5) as connection:
        connection.settimeout(patience)
        for piece in pieces:
            connection.sendall(piece)
            with contextlib.suppress(TimeoutError):
                connection.settimeout(0.002)
                reply += connection.recv(1 << 16)
            connection.settimeout(patience)
        while block := connection.recv(1 << 16):
            reply += block
    return reply

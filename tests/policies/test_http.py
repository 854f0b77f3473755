"""No response can hang the client: whatever a server sends, it is read or refused, in bounds."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.policies.client import Client, Endpoint
from recollect.policies.failures import EndpointError
from recollect.policies.http import Slow, Unreachable, Wire, WireError
from recollect.policies.http_reader import MAX_BODY, NotHttp, Response, ResponseReader
from tests.support.token_server import http_response, listening, read_request

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def read(*pieces: bytes, limit: int = MAX_BODY) -> Response | None:
    reader = ResponseReader(limit)
    for piece in pieces:
        response = reader.feed(piece)
        if response is not None:
            return response
    return reader.end()


def head(*lines: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join([status, *lines, "", ""]).encode("latin-1")


@pytest.mark.parametrize(
    "response",
    [
        # sizes of chunks
        *(
            CHUNKED + size + b"\r\nwhole\r\n0\r\n\r\n"
            for size in (
                *(b"-5", b"-0", b"+5", b"0x5", b"5_", b"1_0", b" 5", b"", b";x", b"5 5", b"5\x00"),
                *("\u0665".encode(), b"ffffffffffffffff", b"9" * 300, b"7fffffffffffffff", b"5\n"),
            )
        ),
        CHUNKED + b"5" + b";x=1" * 100 + b"\r\nwhole\r\n0\r\n\r\n",
        CHUNKED + b"4\r\nwhole\r\n0\r\n\r\n",
        CHUNKED + b"0\r\nno trailer\r\n\r\n",
        CHUNKED + b"0\r\n" + b"X: 1\r\n" * 200 + b"\r\n",
        CHUNKED + b"0\r\n" + b"x" * 70_000,
        # lengths
        *(
            head(f"Content-Length: {length}") + b"whole"
            for length in ("-1", "+5", "5.0", "0x5", "5, 5", "", "5 5", "9" * 30, str(1 << 40))
        ),
        head("Content-Length: 5", "Content-Length: 6") + b"whole",
        head("Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
        head("Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n",
        head("Transfer-Encoding: identity") + b"whole",
        head("Content-Encoding: gzip", "Content-Length: 5") + b"whole",
        # heads
        head("no colon"),
        head(": no name"),
        head("X : space"),
        head(" X: folded"),
        head("X: nul\x00"),
        head("X: 1\nY: 2"),
        head(*("X: 1" for _ in range(200))),
        head("X: " + "x" * 70_000),
        *(
            head("Content-Length: 0", status=status)
            for status in (
                *("HTTP/1.1", "HTTP/1.1 ", "HTTP/1.1 20", "HTTP/1.1 2000 OK", "HTTP/1.1 -20 OK"),
                *("HTTP/2 200 OK", "HTTP/1.15 200 OK", "http/1.1 200 OK", "HTTP/1.1  200 OK"),
                *("HTTP/1.1 20\u0661 OK".encode().decode("latin-1"), "HTTP/1.1 999 OK", "200 OK"),
                "HTTP/1.1 101 Switching Protocols",
            )
        ),
        head(status="HTTP/1.1 100 Continue") * 1000,
        b"\r\n\r\n",
        b"x" * 70_000,
    ],
)
def test_what_the_standard_does_not_allow_is_refused(response):
    for pieces in ([response], [response[i : i + 7] for i in range(0, len(response), 7)]):
        with pytest.raises(NotHttp):
            read(*pieces)
            raise AssertionError("it was taken")


def test_bodies_end_at_their_limit_whatever_frames_them():
    body = b"x" * 1001
    chunks = b"".join(b"1\r\nx\r\n" for _ in body)
    framed = [
        http_response(200, body),
        CHUNKED + b"3e9\r\n" + body + b"\r\n0\r\n\r\n",
        CHUNKED + chunks + b"0\r\n\r\n",
        head() + body,
    ]
    for response in framed:
        assert read(response, limit=1001).body == body
        with pytest.raises(NotHttp, match="more than 1000 bytes"):
            read(response, limit=1000)
    with pytest.raises(NotHttp, match="more room than the body"):
        read(CHUNKED, *[b"1" + b";" + b"x" * 200 + b"\r\nx\r\n"] * 9000)


def test_the_most_frames_that_a_body_may_have_are_read_in_time():
    body = b"1\r\nx\r\n" * (1 << 18)
    pieces = [body[i : i + (1 << 16)] for i in range(0, len(body), 1 << 16)]
    longest, reader = 0.0, ResponseReader(1 << 20)
    reader.feed(CHUNKED)
    for piece in pieces:
        started = time.perf_counter()
        assert reader.feed(piece) is None
        longest = max(longest, time.perf_counter() - started)
    assert len(reader._data) < 8 and longest < 1.0
    assert len(reader.feed(b"0\r\n\r\n").body) == 1 << 18


_LINE = st.sampled_from(
    [
        *(b"Content-Length: 4", b"Content-Length: 5", b"Transfer-Encoding: chunked", b"X: 1"),
        *(b"Connection: close", b"X", b"Content-Length: -1"),
    ]
)
_FRAME = st.sampled_from(
    [
        b"4\r\nbody\r\n",
        b"0\r\n",
        b"\r\n",
        b"-1\r\n",
        b"X: 1\r\n",
        b"5;a\r\nwhole\r\n",
        b"f\r\n",
        b"x",
    ]
)


@given(
    first=st.sampled_from([b"HTTP/1.1 200 OK", b"HTTP/1.0 404 No", b"HTTP/1.1 100 Go", b"HTTP"]),
    lines=st.lists(_LINE, max_size=3),
    frames=st.lists(_FRAME | st.binary(max_size=5), max_size=6),
    cuts=st.lists(st.integers(0, 80), max_size=6),
)
def test_it_does_not_matter_how_a_response_is_cut(first, lines, frames, cuts):
    whole = b"\r\n".join([first, *lines, b"", b""]) + b"".join(frames)
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(places)]

    def outcome(*pieces: bytes) -> Any:
        try:
            return read(*pieces)
        except NotHttp:
            return NotHttp

    assert outcome(whole) == outcome(*pieces)


# --- hostile servers -----------------------------------------------------------------------------


def _hostile(draw: random.Random) -> bytes:
    """Put a response together from what a careless reader would believe."""
    sizes = [b"-1", b"-5", b"5", b"0", b"7fffffff", b"ffffffffffffffffffff", b"zz", b"", b"1;" * 40]
    lengths = [b"-1", b"5", b"99999999999999999999", b"5\r\nContent-Length: 6", b"1_0", b"0x5"]
    kind = draw.randrange(7)
    if kind == 0:
        body = b"".join(draw.choice(sizes) + b"\r\nwhole\r\n" for _ in range(draw.randrange(1, 5)))
        return CHUNKED + body
    if kind == 1:
        return b"HTTP/1.1 200 OK\r\nContent-Length: " + draw.choice(lengths) + b"\r\n\r\nwhole"
    if kind == 2:
        return b"HTTP/1.1 100 Continue\r\n\r\n" * draw.choice([1, 500])
    if kind == 3:
        return b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * draw.choice([10, 20_000])
    if kind == 4:
        return draw.randbytes(draw.choice([1, 100, 100_000]))
    if kind == 5:
        return http_response(200, draw.choice([b"[" * 50_000, b"9" * 9000, b'{"a":' * 30_000, b""]))
    return http_response(draw.choice([200, 404, 429, 503]), b"{}", "Retry-After: " + "9" * 400)


def test_no_hostile_server_hangs_a_call_or_the_loop():
    draw = random.Random(18)
    endings = ["close", "hang", "drip", "repeat"]

    async def handle(reader, writer):
        if await read_request(reader) is None:
            return
        data, ending = _hostile(draw), draw.choice(endings)
        if ending == "drip":
            for at in range(0, len(data), 3):
                writer.write(data[at : at + 3])
                await asyncio.sleep(0.01)
        writer.write(data)
        await writer.drain()
        if ending == "hang":
            await asyncio.sleep(60)
        while ending == "repeat":
            writer.write(data or b"x")
            await writer.drain()
            await asyncio.sleep(0.001)

    async def call(client: Client) -> str:
        try:
            await client.post("/completions", {}, lambda answer: answer, limit=1 << 16)
            return "answered"
        except (WireError, EndpointError) as error:
            return type(error).__name__

    async def run(port: int) -> tuple[list[str], float]:
        url = f"http://127.0.0.1:{port}/v1"
        client = Client(Endpoint(url, timeout=0.4, retries=1, backoff=0.001, breaker=1 << 20))
        late = 0.0

        async def watch() -> None:
            nonlocal late
            while True:
                asked = time.perf_counter()
                await asyncio.sleep(0.01)
                late = max(late, time.perf_counter() - asked)

        watching = asyncio.create_task(watch())
        ended = await asyncio.gather(*(call(client) for _ in range(200)))
        watching.cancel()
        client.close()
        return ended, late

    with listening(handle) as (port, _):
        started = time.perf_counter()
        ended, late = asyncio.run(run(port))
        assert time.perf_counter() - started < 20
    assert len(ended) == 200 and late < 2.0
    assert {"NotHttp", "TimedOut", "NotJson"} <= set(ended)


def test_one_deadline_covers_the_whole_exchange():
    async def deaf(reader, writer):  # reads nothing: a large request is never written
        await asyncio.sleep(60)

    async def drip(reader, writer):
        await read_request(reader)
        for byte in CHUNKED + b"1\r\nx\r\n" * 10_000:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.005)

    for handle, size in ((deaf, 1 << 26), (drip, 10)):
        with listening(handle) as (port, _):
            wire = Wire(f"http://127.0.0.1:{port}/v1")
            started = time.perf_counter()
            with pytest.raises(Slow):
                asyncio.run(wire.send("POST", "/x", b"x" * size, seconds=0.3))
            assert time.perf_counter() - started < 3


def test_names_and_paths_that_no_host_has_are_one_error():
    with pytest.raises(Unreachable):
        asyncio.run(Wire("http://a..b/v1").send("GET", "/x"))
    wire = Wire("http://h/v1 \u00e9")
    assert wire._head("GET", "/x", None, "").startswith(b"GET /v1%20%C3%A9/x HTTP/1.1\r\n")


def test_bytes_that_are_no_text_spoil_a_character_and_not_a_reply():
    async def handle(reader, writer):
        await read_request(reader)
        writer.write(http_response(200, b'\xef\xbb\xbf{"said": "a\xff\xed\xa0\x80b"}'))

    async def run(port: int) -> Any:
        client = Client(Endpoint(f"http://127.0.0.1:{port}/v1"))
        try:
            return await client.post("/x", {}, lambda answer: answer)
        finally:
            client.close()

    with listening(handle) as (port, _):
        said = asyncio.run(run(port))["said"]
    assert said.startswith("a\ufffd") and said.endswith("b") and json.dumps(said)

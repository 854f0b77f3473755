"""Whatever the server behind an endpoint sends, a client gets an answer or an error, in time."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from typing import Any

import pytest

from recollect.cli import main
from recollect.endpoint import upstream
from recollect.endpoint.answers import Answer
from recollect.endpoint.app import _limit
from recollect.endpoint.folding import Folded
from recollect.endpoint.upstream import UpstreamAnswers
from recollect.serve.refusal import Refusal
from tests.support.token_server import listening, read_request

FOLDED = Folded([{"role": "user", "content": "hi"}], "hi", {"recollect": {}}, 64)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def piece(text: str, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, **more}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def answered(first: bytes, again: bytes = b"", stream: bool = False, seconds: float = 0.3) -> Any:
    """Return what a client gets of a server that says `first`, then `again` for ever."""

    async def handle(reader, writer):
        await read_request(reader)
        writer.write(first)
        while again:
            writer.write(again)
            await writer.drain()
            await asyncio.sleep(0.001)

    async def ask(url: str) -> Any:
        answers = UpstreamAnswers(url, "", "m", "m", seconds)
        answer = Answer()
        if not stream:
            return json.loads(await answers.reply({}, FOLDED, answer)), answer.texts
        return [c async for c in answers.stream({}, FOLDED, answer)], answer.texts

    began = time.monotonic()
    try:
        with listening(handle) as (port, _close):
            return asyncio.run(ask(f"http://127.0.0.1:{port}/v1"))
    finally:
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("first", "again", "says"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "too slow"),
        (b"HTTP/1.1 200 OK\r\n", b"X-More: yes\r\n" * 99, "failed"),
        (b"HTTP/1.1 200 OK\r\n", b"X", "too slow|failed"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", b"",
         "answered 302"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", b"", "failed"),
        (HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n", b"", "failed"),
        (CHUNKED + b"-5\r\nhello\r\n", b"", "failed"),
        (CHUNKED + b"ffffffffffffffffff\r\nhello\r\n", b"", "failed|too slow"),
        (HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(bytes(1 << 20)) + b"\n", b"",
         "failed|too slow"),
        (HEAD + b"\r\n\xff\xfe\n", b"", "failed|too slow"),
        (b"\0" * 9, b"\0" * 9999, "failed"),
    ],
)  # fmt: skip
def test_a_server_that_breaks_the_protocol_is_an_error_in_time(first, again, says, stream):
    with pytest.raises(Refusal, match=says) as raised:
        answered(first, again, stream)
    assert raised.value.status in (502, 504)


def test_an_answer_that_trickles_ends_with_the_time_limit():
    with pytest.raises(Refusal, match="too slow"):
        answered(HEAD + b"Content-Length: 99999\r\n\r\n", b" ")


def test_a_stream_without_an_end_is_cut(monkeypatch):
    monkeypatch.setattr(upstream, "MAX_BODY", 1 << 16)
    monkeypatch.setattr(upstream, "MOST_LINE", 1 << 14)
    with pytest.raises(Refusal, match="more than 65536 bytes"):
        answered(HEAD + b"\r\n", piece("on and on") * 99, stream=True)
    with pytest.raises(Refusal, match="event of its stream is too long"):
        answered(HEAD + b"\r\n", b"x" * 999, stream=True)


def test_a_line_in_pieces_of_one_byte_takes_no_longer_for_its_length():
    text = "y" * 60_000
    whole = b"".join(chunk(bytes([byte])) for byte in piece(text) + b"data: [DONE]\n\n")
    chunks, texts = answered(CHUNKED + whole + b"0\r\nX-Trailer: 1\r\n\r\n", stream=True, seconds=4)
    assert texts == [text] and chunks[-1]["recollect"] == {}


def test_odd_values_in_a_stream_are_no_failure():
    odd = [piece("a", index=index) for index in ([], "1", -1, 10**30, None, {"x": 1})]
    parts = [*odd, piece("b", index=1), b'data: {"choices": [7, null, {"delta": 5}]}\n\n']
    parts += [b'data: {"choices": [{"delta": {"content": "\xff"}}]}\r\n\r\n', b"data: [DONE]\n\n"]
    chunks, texts = answered(HEAD + b"\r\n" + b"".join(parts), stream=True)
    assert texts == ["aaaaaa\ufffd", "b"] and len(chunks) == len(parts) - 1


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://me:hush@127.0.0.1:1/v1", "password or a key"),
        ("http://127.0.0.1:1/v1?api_key=hush", "password or a key"),
        ("ftp://127.0.0.1/v1", "not the address"),
        ("file:///etc/passwd", "not the address"),
        ("http://127.0.0.1:99999/v1", "not the address"),
        ("http://[::1/v1", "not the address"),
        ("http://127.0.0.1:1/v1\r\nX-Header: 1", "not the address"),
    ],
)
def test_an_upstream_s_address_is_checked_and_its_secrets_are_not_repeated(
    url, says, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "--upstream", url, "--agent", "fold", "--port", "0"]) == 2
    said = capsys.readouterr()
    assert says in " ".join(said.err.split()) and "hush" not in said.err + said.out
    assert not list(tmp_path.iterdir())


def test_a_list_of_items_has_a_limit_that_is_a_number():
    class Asked:
        def __init__(self, limit: str) -> None:
            self.query_params = {"limit": limit}

    assert _limit(Asked("7")) == 7
    for wrong in ("0", "-1", "1001", "x", "", "1" + "0" * 5000, "00000001" + "9" * 5000):
        with pytest.raises(Refusal, match="limit"):
            _limit(Asked(wrong))

"""Limits before work: what asks for too much, comes too slowly or never ends is turned away."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI

from recollect.serve.bodies import JsonShape
from recollect.serve.server import Serving
from tests.support.served import served

USER = [{"role": "user", "content": "a"}]


def asked(model, body: dict[str, Any], path: str = "/completions", **limits: Any):
    """Send one request; return the response, the seconds it took and how often text was encoded."""

    async def work(_client: AsyncOpenAI, server: Serving):
        encoder, runs = server.service.encoder, []
        run = encoder._run
        encoder._run = lambda size, work: runs.append(size) or run(size, work)  # type: ignore
        async with httpx.AsyncClient(timeout=60) as client:
            started = time.perf_counter()
            response = await client.post(server.url + path, json=body)
            seconds = time.perf_counter() - started
        assert server.service.in_flight == 0 and server.service.bodies.held == 0
        return response, seconds, len(runs)

    return served(model, work, **limits)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"prompt": [[1]] * 1000, "n": 128}, "128000"),
        ({"prompt": ["a"] * 1000, "n": 128}, "128000"),
        ({"prompt": [[1]] * 5000}, "prompts"),
        ({"prompt": [1, 2], "n": 128, "max_tokens": 4000}, "tokens in all"),
    ],
)
def test_choices_are_counted_before_any_is_made(model, body, says):
    response, _seconds, encoded = asked(model, body, tokens=1 << 18)
    assert response.status_code == 400 and says in response.json()["error"]["message"]
    assert encoded == 0


def test_a_body_of_too_many_values_is_refused_before_it_is_parsed(model):
    for prompt in ([[1]] * 20_000, [1] * 200_000):
        response, _seconds, encoded = asked(model, {"prompt": prompt})
        assert response.status_code == 413 and encoded == 0
    # A window of tokens always passes, and so does text with as many commas and brackets.
    response, *_ = asked(model, {"prompt": [5] * 4000, "max_tokens": 1}, values=100)
    assert response.status_code == 200
    response, *_ = asked(model, {"prompt": '[,{"a' * 700, "max_tokens": 1}, values=100)
    assert response.status_code == 200


@pytest.mark.parametrize("path", ["/completions", "/chat/completions"])
def test_a_text_that_cannot_fit_is_never_encoded(model, path):
    text = "hello " * 2_500_000  # 15 MB for a window of 512 tokens
    body = {"prompt": text} if path == "/completions" else {"messages": USER}
    if path != "/completions":
        body = {"messages": [{"role": "user", "content": text}]}
    response, seconds, encoded = asked(model, body, path, window=512)
    told = response.json()["error"]
    assert response.status_code == 400 and told["code"] == "context_length_exceeded"
    assert encoded == 0 and seconds < 10


def test_numbers_of_thousands_of_digits_are_not_read(model):
    async def work(_client: AsyncOpenAI, server: Serving):
        async with httpx.AsyncClient(timeout=60) as client:
            for number in (b"9" * 5000, b"0." + b"9" * 5000, b"-" + b"9" * 70):
                body = b'{"prompt": "a", "max_tokens": 1, "temperature": %s}' % number
                sent = {"content": body, "headers": {"Content-Type": "application/json"}}
                response = await client.post(server.url + "/completions", **sent)
                assert response.status_code == 400 and "digits" in response.text
            # Digits in a text are text.
            response = await client.post(server.url + "/completions", json={"prompt": "9" * 500})
            assert response.status_code == 200

    served(model, work)


@pytest.mark.parametrize("more", [{"x" * 500_000: 1}, {"model": "m" * 500_000}])
def test_an_error_does_not_repeat_what_was_sent(model, more):
    response, *_ = asked(model, {"prompt": "a", **more})
    assert response.status_code in (400, 404) and len(response.content) < 1000


def test_a_text_that_does_not_fit_is_encoded_in_pieces_and_no_further_than_needed(model):
    # The byte tokenizer's longest token has some characters: only pieces show that it is too long.
    async def work(client: AsyncOpenAI, server: Serving):
        encoder = server.service.encoder
        encoder.most = 1 << 30
        sizes: list[int] = []
        run = encoder._run
        encoder._run = lambda size, work: sizes.append(size) or run(size, work)  # type: ignore
        with pytest.raises(Exception, match="do not fit") as raised:
            await client.completions.create(model="tiny", prompt="hello " * 150_000)
        assert raised.value.code == "context_length_exceeded"
        assert len(sizes) <= 3

    served(model, work)


def test_a_long_text_holds_up_no_short_one(model):
    async def work(client: AsyncOpenAI, server: Serving):
        server.service.encoder.most = 1 << 30
        root = server.url.removesuffix("/v1")
        async with httpx.AsyncClient(timeout=60) as plain:
            body = {"prompt": "hello " * 60_000}
            long = asyncio.create_task(plain.post(root + "/tokenize", json=body))
            await asyncio.sleep(0.05)
            await client.chat.completions.create(model="tiny", messages=USER, max_tokens=2)
            assert not long.done()
            assert (await long).json()["count"] == 360_000

    served(model, work)


def test_a_client_that_leaves_while_its_text_waits_is_forgotten(model):
    async def work(_client: AsyncOpenAI, server: Serving):
        server.service.encoder.most = 1 << 30
        (_, _), (pool, _) = server.service.encoder._lanes
        root = server.url.removesuffix("/v1")
        async with httpx.AsyncClient(timeout=60) as plain:
            body = {"prompt": "hello " * 20_000}
            asking = [
                asyncio.create_task(plain.post(root + "/tokenize", json=body)) for _ in range(8)
            ]
            while server.service.in_flight < 8:
                await asyncio.sleep(0.01)
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        while server.service.in_flight or server.service.bodies.held:
            await asyncio.sleep(0.01)
        # Nothing of them is left to do but what had begun.
        done = asyncio.wrap_future(pool.submit(lambda: None))
        await asyncio.wait_for(done, 10)

    served(model, work)


# --- JSON that comes in pieces -------------------------------------------------------------------

values = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('ab,[]{}"\\:\u00e9'), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


def shape(value: Any) -> tuple[int, int]:
    """Count commas, and lists and objects, by walking through a value."""
    inner = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(inner, list):
        return 0, 0
    parts = [shape(item) for item in inner]
    return max(0, len(inner) - 1) + sum(a for a, _ in parts), 1 + sum(b for _, b in parts)


@given(values, st.booleans(), st.lists(st.integers(0, 200), max_size=5))
def test_values_are_counted_whatever_the_texts_hold_and_wherever_it_is_cut(value, ascii, cuts):
    raw = json.dumps(value, ensure_ascii=ascii).encode()
    counted = JsonShape()
    places = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    for a, b in itertools.pairwise(places):
        counted.feed(raw[a:b])
    assert (counted.values, counted.opened) == shape(value)


# --- connections ----------------------------------------------------------------------------------


def connected(model, work, **limits):
    """Run `work(open, server)`, where `open()` gives a raw connection to the server."""

    async def run(_client: AsyncOpenAI, server: Serving):
        parts = urlsplit(server.url)
        opened: list[asyncio.StreamWriter] = []

        async def open_():
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            opened.append(writer)
            return reader, writer

        try:
            return await work(open_, server)
        finally:
            for writer in opened:
                writer.transport.abort()

    return served(model, run, **limits)


async def health(server: Serving) -> float:
    async with httpx.AsyncClient(timeout=30) as client:
        started = time.perf_counter()
        response = await client.get(server.url.removesuffix("/v1") + "/health")
        assert response.status_code == 200
        return time.perf_counter() - started


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("sent", [b"", b"POST /v1/comp", HEAD])
def test_a_head_that_does_not_come_is_not_waited_for(model, sent):
    async def work(open_, _server: Serving):
        reader, writer = await open_()
        started = time.perf_counter()
        answer = b""
        with contextlib.suppress(ConnectionError):  # closed while we still send
            for byte in sent:  # a byte now and then buys no time
                writer.write(bytes([byte]))
                await asyncio.sleep(0.001)
            answer = await reader.read()
        assert time.perf_counter() - started < 5
        assert answer[:12] in (b"", b"HTTP/1.1 408")

    connected(model, work, head_seconds=0.3)


def test_a_body_that_does_not_come_is_not_waited_for(model):
    async def work(open_, server: Serving):
        reader, writer = await open_()
        writer.write(HEAD + b'Content-Length: 1000\r\n\r\n{"prompt"')
        assert (await reader.read()).startswith(b"HTTP/1.1 408")
        assert server.service.bodies.held == 0
        reader, writer = await open_()
        writer.write(HEAD + b"Content-Length: 99999999999999999999\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 4")  # without a byte of it

    connected(model, work, body_seconds=0.3)


def test_a_head_without_end_is_refused(model):
    async def work(open_, server: Serving):
        reader, writer = await open_()
        writer.write(HEAD + b"X: " + b"y" * (1 << 20))
        with contextlib.suppress(ConnectionError):  # closed with what was left unread
            assert (await reader.read()).startswith(b"HTTP/1.1 400")
        await health(server)

    connected(model, work)


def test_a_body_in_tiny_chunks_is_refused_and_one_in_some_is_read(model):
    async def work(open_, server: Serving):
        chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
        reader, writer = await open_()
        writer.write(chunked + b"1\r\na\r\n" * 50_000)
        with contextlib.suppress(ConnectionError):  # closed with what was left unread
            assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 400")
        reader, writer = await open_()
        body = json.dumps({"prompt": [5], "max_tokens": 1}).encode()
        pieces = b"".join(b"%x\r\n%s\r\n" % (1, body[i : i + 1]) for i in range(len(body)))
        writer.write(chunked + pieces + b"0\r\n\r\n")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
        await health(server)

    connected(model, work)


def test_a_crowd_of_connections_holds_nobody_up(model):
    async def work(open_, server: Serving):
        crowd = [asyncio.create_task(open_()) for _ in range(600)]
        waited = [await health(server) for _ in range(5)]
        await asyncio.gather(*crowd, return_exceptions=True)
        assert sorted(waited)[2] < 1.0  # one loop both opens and accepts them here

    connected(model, work, connections=100)


def test_idle_connections_make_room_for_new_ones(model):
    async def work(open_, server: Serving):
        first, *_ = [await open_() for _ in range(30)]
        for i in range(30):  # half a head, or half a body, is as idle as nothing
            _reader, writer = await open_()
            writer.write(HEAD + (b"Content-Length: 9\r\n\r\n{" if i % 2 else b"X-"))
        assert await asyncio.wait_for(first[0].read(), 10) == b""
        for _ in range(3):
            await health(server)

    connected(model, work, connections=20)


def test_a_connection_outlasts_the_time_that_clients_keep_it(model):
    """A client forgets an idle connection after 5 s: it must not find it closed just before."""

    async def work(open_, server: Serving):
        reader, writer = await open_()
        for wait in (6.0, 0.0):
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            await reader.readuntil(b"}")
            await asyncio.sleep(wait)

    connected(model, work)


def test_connections_with_a_request_are_not_closed_for_new_ones(model):
    async def work(open_, server: Serving):
        end, service = server.service.engine.model.tokenizer.end_ids, server.service
        server.service.engine.model.tokenizer.end_ids = (258,)
        body = json.dumps({"prompt": [5], "max_tokens": 500, "temperature": 0}).encode()
        own = []
        for _ in range(4):
            reader, writer = await open_()
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            own.append(reader)
        while service.in_flight < 4:
            await asyncio.sleep(0.01)
        for _ in range(8):
            await open_()
        answers = [await reader.readuntil(b"\r\n\r\n") for reader in own]
        server.service.engine.model.tokenizer.end_ids = end
        assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)

    connected(model, work, connections=6)


def test_who_does_not_take_what_it_is_sent_is_left(model):
    async def work(open_, server: Serving):
        _reader, writer = await open_()
        writer.transport.pause_reading()
        body = json.dumps({"tokens": [5] * 60_000}).encode()
        head = HEAD.replace(b"/v1/completions", b"/detokenize")
        lost = asyncio.create_task(writer.wait_closed())
        for _ in range(400):  # far more than the system keeps for either side
            writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            await asyncio.sleep(0.01)
            if lost.done():
                break
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(lost, 20)
        await health(server)

    connected(model, work, write_seconds=0.3)

"""Random and hostile replies: every call ends in time, with a result or one clean error."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import random
import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.errors import BoundaryError
from recollect.policies.client import Client, Endpoint
from recollect.policies.failures import EndpointError, checked
from recollect.policies.http import Response, Wire, WireError
from recollect.policies.http_reader import NotHttp, ResponseReader
from recollect.policies.served import (
    EndpointPolicy,
    EndpointSpeaker,
    read_completion,
    read_counts,
    read_spoken,
)
from recollect.types import Completion, Sampling
from tests.support.hostile import texts
from tests.support.token_server import http_response, listening, read_request

# --- bytes ----------------------------------------------------------------------------------------

PIECES = (
    *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/2 200"),
    *(b"HTTP/1.1 204 No Content\r\n", b"HTTP/1.1 503 x\r\n", b"HTTP/1.1 101 Switching\r\n\r\n"),
    *(b"Content-Length: 5\r\n", b"Content-Length: -5\r\n", b"Content-Length: 999999999999\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n", b"Connection: close\r\n"),
    *(
        b"Content-Encoding: gzip\r\n",
        b"Retry-After: 1e999\r\n",
        b"X\r\n",
        b": y\r\n",
        b" folded\r\n",
    ),
    *(b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"\x00", b"\xff", b"0\r\n\r\n", b"5\r\nwhole\r\n"),
    *(
        b"-1\r\n",
        b"ffffffffffffffff\r\n",
        b"7fffffffffffffff\r\n",
        b"5;x=\r\n",
        b"5 \r\n",
        b"whole",
    ),
    *(b"0\r\nX: y\r\n\r\n", b'{"a": 1}', b"x" * 300, b"a: b\r\n" * 130),
)
streams = st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=12)), max_size=12).map(
    b"".join
)


def outcome(data: bytes, cuts: list[int]) -> tuple[str, Any]:
    """Feed a stream in pieces; return what came of it."""
    reader = ResponseReader(limit=1000)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    try:
        for a, b in itertools.pairwise(places):
            found = reader.feed(data[a:b])
            if found is not None:
                return "whole", found
            assert len(reader._data) + len(reader._body) <= len(data)
        return "end", reader.end()
    except NotHttp as error:
        assert len(str(error)) < 300
        return "refused", None


@settings(max_examples=400)
@given(streams, st.lists(st.integers(0, 400), max_size=6))
def test_no_stream_breaks_the_reader_and_how_it_is_cut_does_not_matter(data, cuts):
    kind, found = outcome(data, [])
    again, same = outcome(data, cuts)
    # Cut before what is wrong with it, a response may be whole already.
    assert (kind, found) == (again, same) or (kind, again) == ("refused", "whole")
    if found is not None:
        assert len(found.body) <= 1000 and 200 <= found.status < 600


def test_every_exchange_ends_within_its_deadline():
    """Hundreds of random servers at once: some close, some wait, some send for ever."""
    draw = random.Random(7)
    seconds = 0.5

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        if draw.random() < 0.2:  # and then more than was asked for
            writer.write(http_response(200, b"{}"))
        for _ in range(draw.randint(0, 8)):
            if not writer.transport.is_closing():
                writer.write(draw.choice([*PIECES, draw.randbytes(draw.randint(0, 40))]))
            await asyncio.sleep(draw.choice([0, 0, 0.01]))
        match draw.randint(0, 3):
            case 0:
                writer.transport.abort()
            case 1:
                await asyncio.sleep(30)
            case 2:
                while not writer.transport.is_closing():
                    writer.write(draw.choice([b"1\r\na\r\n", b"a: b\r\n", b"x" * 1000]))
                    await asyncio.sleep(0.001)
        writer.close()

    async def ask() -> str:
        wire = Wire(url)
        started = time.perf_counter()
        try:
            response = await wire.send("POST", "/x", b"{}", seconds=seconds, limit=10_000)
            kind = type(response).__name__
        except WireError as error:
            kind = type(error).__name__
        finally:
            wire.close()
        assert time.perf_counter() - started < seconds + 5  # a slow machine, not a hung call
        return kind

    async def work() -> set[str]:
        return set(await asyncio.gather(*(ask() for _ in range(200))))

    with listening(answer) as (port, _close):
        url = f"http://127.0.0.1:{port}/v1"
        kinds = asyncio.run(work())
    assert kinds >= {"Response", "NotHttp", "Slow", "Dropped"}


# --- JSON -----------------------------------------------------------------------------------------

NAMES = (
    *("choices", "message", "content", "finish_reason", "usage", "prompt_tokens", "logprobs"),
    *("completion_tokens", "tool_calls", "function", "name", "arguments", "token_ids", "refusal"),
    *("token_logprobs", "prompt_token_ids", "id", "logprob", "error", "text"),
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**40), 10**40),
    st.integers(-2, 300),
    st.floats(),
    st.sampled_from(["stop", "length", "tool_calls", "content_filter", "assistant"]),
    texts,
)
plain = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
    ),
    max_leaves=20,
)


def answers(message: str) -> st.SearchStrategy[dict[str, Any]]:
    """Answers that are nearly right, so that what is wrong with them lies deep."""
    choice = st.fixed_dictionaries(
        {},
        optional={
            "message": st.one_of(plain, st.fixed_dictionaries({"content": leaves})),
            "finish_reason": st.one_of(leaves, st.just("stop"), st.just("length")),
            "token_ids": st.one_of(plain, st.lists(st.integers(-1, 300), max_size=4)),
            "logprobs": st.one_of(
                plain,
                st.fixed_dictionaries({"token_logprobs": st.lists(st.floats(), max_size=4)}),
                st.fixed_dictionaries({"content": st.lists(plain, max_size=4)}),
            ),
            "prompt_token_ids": plain,
        },
    )
    usage = st.dictionaries(st.sampled_from(["prompt_tokens", "completion_tokens"]), leaves)
    return st.fixed_dictionaries(
        {},
        optional={
            "choices": st.one_of(plain, st.lists(choice, min_size=1, max_size=1)),
            "usage": st.one_of(plain, usage),
            message: plain,
        },
    )


@settings(max_examples=300)
@given(answers("error"))
def test_an_answer_is_a_reply_within_bounds_or_one_clean_error(answer):
    try:
        done = read_completion(answer, [1, 2, 3], 4, 257)
        assert isinstance(done, Completion) and len(done.token_ids) == len(done.logprobs) <= 4
        assert all(0 <= token < 257 for token in done.token_ids)
        assert all(math.isfinite(x) for x in done.logprobs)
    except EndpointError as error:
        assert len(str(error)) < 500
    counts = read_counts(answer, 100, 10)
    assert counts is None or (0 <= counts[0] <= 100 and 0 <= counts[1] <= 10)
    try:
        spoken = read_spoken(answer, counts or (0, 0))
        assert isinstance(spoken.text, str)
        assert 0 <= spoken.prompt_tokens <= 100 and 0 <= spoken.sampled_tokens <= 10
    except EndpointError as error:
        assert len(str(error)) < 500


@settings(max_examples=200)
@given(
    st.integers(200, 599),
    st.one_of(st.binary(max_size=60), plain.map(json.dumps).map(str.encode)),
    st.one_of(st.text(max_size=30), st.sampled_from(["nan", "inf", "-1", "1e999", "9" * 5000])),
)
def test_whatever_a_body_and_its_head_say_is_an_object_or_one_clean_error(status, body, after):
    try:
        assert isinstance(checked(Response(status, {"retry-after": after}, body)), dict)
        assert status == 200
    except EndpointError as error:
        assert len(str(error)) < 500 and error.retry_after >= 0
        wait = Client(Endpoint("http://localhost:1/v1", timeout=7.0))._wait(error, 0, 1)
        assert 0 <= wait <= 7.0 * 1.25


def test_calls_against_servers_that_answer_anything_end_and_count_within_bounds():
    """Both kinds of model, over a socket: what a run records can be believed or is a failure."""
    draw = random.Random(3)

    def value(depth: int = 0) -> Any:
        kind = draw.randint(0, 9 if depth < 4 else 5)
        if kind == 6:
            return [value(depth + 1) for _ in range(draw.randint(0, 3))]
        if kind > 6:
            return {draw.choice(NAMES): value(depth + 1) for _ in range(draw.randint(0, 5))}
        many = (None, True, 10**30, -5, 1.5e308, "stop", "\ud800", "x" * 50, 3, "length")
        return draw.choice(many)

    def said() -> Any:
        count = draw.choice([3, 0, -1, 10**30, "7", None])
        message = {"content": draw.choice(["yes", "\ud800", None, 4])}
        choice = {"finish_reason": "stop", "message": message, "token_ids": [1, 2]}
        choice["logprobs"] = {"token_logprobs": draw.choice([[-1.0, -2.0], [1e9], None])}
        usage = {"prompt_tokens": count, "completion_tokens": count}
        return draw.choice([value(), {"choices": [choice], "usage": usage}])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await read_request(reader):
            status = draw.choice([200, 200, 200, 400, 429, 500])
            writer.write(http_response(status, json.dumps(said()).encode()))

    async def work(client: Client) -> int:
        speaker = EndpointSpeaker(client, "m")
        policy = EndpointPolicy(client, "m", 257, (256,))
        good = 0
        sampling = Sampling(max_tokens=8)
        for i in range(150):
            asked = (
                policy.sample([1, 2, 3], sampling)
                if i % 2
                else speaker.reply([{"role": "user", "content": "a"}], (), sampling)
            )
            try:
                await asyncio.wait_for(asked, 20)
                good += 1
            except BoundaryError as error:
                assert error.name == "endpoint" and isinstance(error.cause, EndpointError)
                assert len(str(error)) < 600
        client.close()
        return good

    with listening(answer) as (port, _close):
        client = Client(Endpoint(f"http://127.0.0.1:{port}/v1", timeout=5.0, retries=0))
        good = asyncio.run(work(client))
    assert 0 < good < 150 and client.in_flight == 0 and client.calls == 150
    assert 0 <= client.tokens["sampled"] <= 8 * 150
    assert 0 <= client.tokens["prompt"] <= 1000 * 150

"""Models behind a server: exact tokens, checked replies, patience, and a breaker."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.chat.chat import Chats, Model
from recollect.chat.rendering import Renderer, user
from recollect.errors import BoundaryError, UserError
from recollect.models.connect import connect
from recollect.policies.client import Client, Endpoint
from recollect.policies.estimated import EstimatedTokenizer
from recollect.policies.failures import RateLimited, ServerError
from recollect.policies.http import Dropped, NotHttp, Unreachable, Wire
from recollect.policies.served import EndpointPolicy, EndpointSpeaker, read_completion
from recollect.seeds import derive
from recollect.types import Sampling
from tests.support.bytes_tokenizer import END, TH, ByteTokenizer
from tests.support.chat_server import chat_server
from tests.support.token_server import http_response, listening, read_request, token_server

TOKENIZER = ByteTokenizer()
QUICK = {"timeout": 5.0, "backoff": 0.001, "breaker": 3, "grace": 0.05}


def hello(prompt: list[int], request: dict) -> list[int]:
    # Two tokens for "th", though its text encodes to one.
    return [*b"th", *b" hello", END]


def say(model: Model, *texts: str, **settings):
    async def run():
        chat = Chats({"answer": model}, (0, "t", 1)).open("answer")
        replies = [await chat.say(user(text), **settings) for text in texts]
        return chat.context, replies

    return asyncio.run(run())


# --- tokens ---------------------------------------------------------------------------------------


def test_the_server_receives_what_was_rendered_and_what_it_returns_is_stored():
    with token_server(TOKENIZER, hello, max_model_len=500) as server:
        model = connect(server.url, tokenizer=TOKENIZER)
        assert isinstance(model.policy, EndpointPolicy) and not model.trainable
        assert model.exact and model.window == 500
        context, replies = say(model, "first", "second")
    asked = server.asked[-2:]
    assert [r.text for r in replies] == ["th hello"] * 2
    assert asked[0]["prompt"] == Renderer(TOKENIZER).opening([user("first")])
    assert asked[1]["prompt"] == [*context.ids[: context.turns[1].start]]
    for turn, request in zip(context.turns, asked, strict=True):
        assert [*context.ids[: turn.start]] == request["prompt"]
        assert list(turn.token_ids) == hello([], {}) and TH not in turn.token_ids
        assert turn.logprobs == tuple(-0.25 * (i % 5) for i in range(9))
    assert context.exact and not context.trainable


def test_sampling_settings_and_stop_reasons_travel():
    with token_server(TOKENIZER, hello) as server:
        sampling = Sampling(max_tokens=3, temperature=0.5, top_p=0.9, stop=("\n",))
        model = connect(server.url, tokenizer=TOKENIZER, sampling=sampling)
        context, (reply,) = say(model, "x")
    request = server.asked[-1]
    assert (request["max_tokens"], request["temperature"], request["top_p"]) == (3, 0.5, 0.9)
    assert request["stop"] == ["\n"] and request["stop_token_ids"] == [END]
    assert request["seed"] == derive(0, "t", 1, 0, 0)
    assert reply.stop_reason == "length" and len(context.turns[0].token_ids) == 3
    assert model.policy.client.tokens == {"prompt": len(request["prompt"]), "sampled": 3}


def choice(**changes) -> dict:
    whole = {
        "text": "ab",
        "token_ids": [97, 98],
        "prompt_token_ids": [1, 2],
        "logprobs": {"token_logprobs": [-1.0, -0.5]},
        "finish_reason": "stop",
    }
    kept = {k: v for k, v in (whole | changes).items() if v is not ...}
    return {"choices": [kept]}


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (choice(token_ids=...), "BadReply", "no token ids"),
        (choice(token_ids="ab"), "BadReply", "no token ids"),
        (choice(token_ids=[97, "b"]), "BadReply", "no whole number"),
        (choice(token_ids=[97, True]), "BadReply", "no whole number"),
        (choice(logprobs=None), "BadReply", "no log-probabilities"),
        (choice(logprobs={"token_logprobs": [-1.0, None]}), "BadReply", "no number"),
        (choice(logprobs={"token_logprobs": [-1.0, float("nan")]}), "BadReply", "no number"),
        (choice(logprobs={"token_logprobs": [-1.0, 5.0]}), "BadReply", "above 0"),
        (choice(logprobs={"token_logprobs": [-1.0]}), "WrongTokens", "2 tokens but 1"),
        (choice(token_ids=[97, 260]), "WrongTokens", "260 is outside"),
        (choice(token_ids=[97, -1]), "WrongTokens", "-1 is outside"),
        (choice(prompt_token_ids=[1, 3]), "WrongTokens", "other tokens"),
        (choice(token_ids=[1] * 4, logprobs={"token_logprobs": [0] * 4}), "WrongTokens", "at most"),
        (choice(finish_reason="content_filter"), "Filtered", "withheld"),
        (choice(finish_reason="abort"), "BadReply", "abort"),
        (choice(finish_reason=["stop"]), "BadReply", "finish_reason"),
        ({"choices": []}, "BadReply", "exactly one"),
        ({}, "BadReply", "exactly one"),
    ],
)
def test_what_does_not_fit_together_is_refused(answer, kind, says):
    with pytest.raises(Exception, match=says) as caught:
        read_completion(answer, [1, 2], 3, 260)
    assert type(caught.value).__name__ == kind


def test_llama_cpps_ids_are_found():
    content = [{"id": 97, "logprob": -1.0}, {"id": END, "logprob": -0.5}]
    answer = choice(token_ids=..., prompt_token_ids=..., logprobs={"content": content})
    assert read_completion(answer, [1], 3, 260).token_ids == (97, END)


def test_a_bad_reply_fails_its_episode_only_and_is_counted():
    def edit(answer):
        if server.asked[-1]["prompt"] != Renderer(TOKENIZER).opening([user("b")]):
            return answer
        return choice(token_ids=[999], logprobs={"token_logprobs": [-1.0]}, prompt_token_ids=...)

    with token_server(TOKENIZER, hello, edit=edit) as server:
        model = connect(server.url, tokenizer=TOKENIZER)
        server.asked.clear()
        with pytest.raises(BoundaryError) as caught:
            say(model, "b")
        assert say(model, "a")[1][0].text == "th hello"
    failure = caught.value.failure
    assert (failure.boundary, failure.kind) == ("endpoint", "WrongTokens")
    assert model.policy.client.failures == {"WrongTokens": 1}
    assert len(server.asked) == 2  # a wrong answer is not asked for again


# --- what a server is ----------------------------------------------------------------------------


def test_no_server_is_the_users_to_mend():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]  # bound but not listening: refused at once
        with pytest.raises(UserError, match="no model answers at") as caught:
            connect(f"http://127.0.0.1:{port}/v1")
    assert "recollect serve" in caught.value.fix


def test_addresses_keys_and_names_are_explained(monkeypatch):
    with pytest.raises(UserError, match="not the address"):
        connect("localhost:8000")
    monkeypatch.setenv("SOME_KEY", "secret")
    with token_server(TOKENIZER, hello) as server:
        with pytest.raises(UserError, match="lists no models") as caught:
            connect(server.url.removesuffix("/v1"))
        assert "/v1" in caught.value.fix
        with pytest.raises(UserError, match="does not serve 'big'") as caught:
            connect(Endpoint(server.url, "big"))
        assert "tiny" in caught.value.fix
        connect(Endpoint(server.url, api_key_env="SOME_KEY"), tokenizer=TOKENIZER)
        assert server.keys[-1] == "Bearer secret"


def test_another_tokenizer_is_noticed():
    upper = ByteTokenizer()
    object.__setattr__(upper, "decode", lambda ids: TOKENIZER.decode(ids).upper() + "!")
    speak = lambda request: {"content": "Hi."}  # noqa: E731
    with token_server(TOKENIZER, hello, speak) as server:
        with pytest.raises(UserError, match="is not that of tiny"):
            connect(server.url, tokenizer=upper)
        assert isinstance(connect(server.url, known=[upper]).policy, EndpointSpeaker)
        model = connect(server.url, known=[TOKENIZER])
        assert isinstance(model.policy, EndpointPolicy)
        assert model.renderer.tokenizer is TOKENIZER
        assert isinstance(connect(server.url).renderer.tokenizer, EstimatedTokenizer)


def test_a_server_that_takes_no_tokens_is_spoken_to_in_messages_unless_that_was_refused():
    with token_server(TOKENIZER, None, lambda request: {"content": "Hi."}) as server:
        assert not connect(server.url, tokenizer=TOKENIZER).exact
        with pytest.raises(UserError, match="does not take and return token ids"):
            connect(server.url, tokenizer=TOKENIZER, speech="tokens")


@pytest.mark.parametrize("status", [404, 500, 501])
def test_a_server_that_fails_on_tokens_is_spoken_to_in_messages(status):
    with chat_server(lambda _text: "Hi.", no_tokens=status) as server:
        endpoint = Endpoint(server.url, **QUICK)
        assert isinstance(connect(endpoint, tokenizer=TOKENIZER).policy, EndpointSpeaker)
    with (
        chat_server(lambda _text: 500, no_tokens=status) as server,
        pytest.raises(UserError, match="no model answers at"),
    ):
        connect(Endpoint(server.url, **QUICK), tokenizer=TOKENIZER)


def test_a_model_whose_replies_cannot_be_used_is_not_called_unlisted():
    async def handle(reader, writer):
        while (head := await read_request(reader)) is not None:
            listed = head[0].endswith("models")
            answer = b'{"data": [{"id": "odd"}]}' if listed else b'{"choices": []}'
            writer.write(http_response(200, answer))

    with (
        listening(handle) as (port, _),
        pytest.raises(UserError, match=r"no reply that can be used .*exactly one choice"),
    ):
        connect(f"http://127.0.0.1:{port}/v1")


def test_silence_does_not_confirm_a_guessed_tokenizer():
    silent = lambda prompt, request: [END]  # noqa: E731
    with token_server(TOKENIZER, silent, lambda request: {"content": "Hi."}) as server:
        assert isinstance(connect(server.url, known=[TOKENIZER]).policy, EndpointSpeaker)
        assert isinstance(connect(server.url, tokenizer=TOKENIZER).policy, EndpointPolicy)
        with pytest.raises(UserError, match="gives no sign"):
            connect(server.url, known=[TOKENIZER], speech="tokens")


def test_the_name_of_the_limit_is_learnt():
    async def handle(reader, writer):
        while (head := await read_request(reader)) is not None:
            path, _, body = head
            if path.endswith("models"):
                writer.write(http_response(200, b'{"data": [{"id": "new"}]}'))
            elif b'"max_tokens"' in body:
                error = {"error": {"message": "use 'max_completion_tokens' instead"}}
                writer.write(http_response(400, json.dumps(error).encode()))
            else:
                message = {"content": "Hi.", "role": "assistant"}
                answer = {"choices": [{"message": message, "finish_reason": "stop"}]}
                writer.write(http_response(200, json.dumps(answer).encode()))

    with listening(handle) as (port, _):
        model = connect(f"http://127.0.0.1:{port}/v1")
        assert say(model, "x")[1][0].text == "Hi."
    assert model.policy.limit_name == "max_completion_tokens"


# --- patience ------------------------------------------------------------------------------------


def post(port: int, **settings):
    client = Client(Endpoint(f"http://127.0.0.1:{port}/v1", **QUICK | settings))

    async def run():
        try:
            return await client.post("/completions", {}, lambda answer: answer)
        finally:
            client.close()

    return client, run


def scripted(*responses: bytes | None):
    """Answer one request after another; None closes the connection. The last goes on for ever."""
    seen = []

    async def handle(reader, writer):
        while await read_request(reader) is not None:
            answer = responses[min(len(seen), len(responses) - 1)]
            seen.append(answer)
            if answer is None:
                return
            writer.write(answer)

    return handle, seen


OK = http_response(200, b'{"ok": 1}')


def test_what_may_pass_is_tried_again_and_counted():
    busy = http_response(429, b"{}", "Retry-After: 0")
    # On a connection that has been used before, a close without an answer is nobody's failure.
    down = http_response(503, b"no", "Connection: close")
    handle, seen = scripted(busy, down, None, OK)
    with listening(handle) as (port, _):
        client, run = post(port)
        assert asyncio.run(run()) == {"ok": 1}
    assert client.failures == {"RateLimited": 1, "ServerError": 1, "Dropped": 1}
    assert client.calls == 1 and len(seen) == 4


def failed(code: object) -> bytes:
    """An error as gateways tell it whose head was sent before the server behind them failed."""
    return http_response(
        200, json.dumps({"error": {"message": "overloaded", "code": code}}).encode()
    )


def test_an_error_under_a_good_status_is_that_error():
    handle, seen = scripted(failed(429), failed(502), failed("overloaded_error"), OK)
    with listening(handle) as (port, _):
        client, run = post(port)
        assert asyncio.run(run()) == {"ok": 1}
    assert client.failures == {"RateLimited": 1, "ServerError": 2} and len(seen) == 4


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (failed(402), "Rejected"),
        (http_response(400, b'{"error": {"message": "too long"}}'), "Rejected"),
        (http_response(200, b'{"choi'), "NotJson"),
        (http_response(200, b"[1]"), "NotJson"),
        (http_response(301, b"", "Location: /x"), "Rejected"),
    ],
)
def test_what_does_not_pass_is_not_tried_again(answer, kind):
    handle, seen = scripted(answer)
    with listening(handle) as (port, _):
        client, run = post(port)
        with pytest.raises(Exception) as caught:
            asyncio.run(run())
    assert type(caught.value).__name__ == kind and len(seen) == 1
    assert client.failures == {kind: 1}


def test_retries_end():
    handle, seen = scripted(http_response(500, b"x"))
    with listening(handle) as (port, _):
        client, run = post(port, retries=2)
        with pytest.raises(Exception, match="500: x"):
            asyncio.run(run())
    assert len(seen) == 3 and client.failures == {"ServerError": 3}


def test_the_wait_is_asked_for_doubled_and_drawn_from_the_call():
    client = Client(Endpoint("http://h/v1", backoff=1.0, timeout=100.0))
    waits = [client._wait(Dropped(), attempt, 7) for attempt in range(6)]
    assert all(2**i / 2 <= wait <= 2**i for i, wait in enumerate(waits))
    assert waits == [client._wait(Dropped(), attempt, 7) for attempt in range(6)]
    assert waits[0] != client._wait(Dropped(), 0, 8)
    asked = [client._wait(RateLimited("x", retry_after=20.0), 0, seed) for seed in range(9)]
    assert all(20.0 <= wait <= 25.0 for wait in asked) and len(set(asked)) == 9
    assert 100.0 <= client._wait(ServerError("x", retry_after=1e9), 0, 7) <= 125.0


def test_a_long_wait_that_a_server_asks_for_is_said_once_a_minute(monkeypatch, capsys):
    monkeypatch.setattr("recollect.policies.client.LONG_WAIT", 0.02)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    why = b'{"error": "no \\u001b[31mquota for sk-0123456789"}'
    short = http_response(429, b'{"error": "a moment"}', "Retry-After: 0.001")
    long = http_response(429, why, "Retry-After: 0.03")
    handle, _ = scripted(short, long, long, OK)
    with listening(handle) as (port, _):
        _client, run = post(port)
        assert asyncio.run(run()) == {"ok": 1}
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "429: no" in said and "it is asked again in" in said
    assert "\x1b" not in said and "0123456789" not in said


def test_a_refused_connection_is_tried_again():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        client, run = post(port, retries=2, breaker=99)
        with pytest.raises(Unreachable):
            asyncio.run(run())
    assert client.failures == {"Unreachable": 3}


@pytest.mark.parametrize("drip", [False, True])
def test_a_server_that_never_ends_an_answer_is_given_up(drip):
    async def handle(reader, writer):
        await read_request(reader)
        for byte in OK[:-1] if drip else b"":
            writer.write(bytes([byte]))
            await asyncio.sleep(0.01)
        await asyncio.sleep(60)

    with listening(handle) as (port, _):
        client, run = post(port, timeout=0.15)
        with pytest.raises(Exception, match="no whole answer"):
            asyncio.run(run())
    assert client.failures == {"TimedOut": 1}


def test_no_more_requests_are_in_flight_than_allowed():
    flying, most = set(), []

    async def handle(reader, writer):
        while await read_request(reader) is not None:
            flying.add(writer)
            most.append(len(flying))
            await asyncio.sleep(0.002)
            flying.discard(writer)
            writer.write(OK)

    with listening(handle) as (port, _):
        client = Client(Endpoint(f"http://127.0.0.1:{port}/v1", concurrency=3))

        async def run():
            calls = [client.post("/completions", {}, lambda a: a) for _ in range(20)]
            await asyncio.gather(*calls)
            idle = len(client._live.wire._idle)
            client.close()
            return idle

        assert asyncio.run(run()) == 3  # connections are used again
    assert max(most) == 3


def test_a_server_that_is_gone_ends_the_run_and_one_that_came_back_does_not():
    handle, _ = scripted(None)
    with listening(handle) as (port, close):
        client, run = post(port, retries=9)
        close()
        with pytest.raises(UserError, match="is gone: 3 connections failed") as caught:
            asyncio.run(run())
        assert "same command" in caught.value.fix
        with pytest.raises(UserError, match="is gone"):  # nobody else waits for it
            asyncio.run(run())
    # Calls fail, but the server says that it is there: their episodes fail, and no more.
    seen = []

    async def healthy(reader, writer):
        while (head := await read_request(reader)) is not None:
            if head[0].endswith("/models"):
                writer.write(OK)
            else:
                seen.append(1)
                return

    with listening(healthy) as (port, _):
        client, run = post(port, retries=9)
        with pytest.raises(Dropped):
            asyncio.run(run())
    assert len(seen) >= 10 and client.failures == {"Dropped": 10}


# --- the wire ------------------------------------------------------------------------------------


def wired(*pieces: bytes, method: str = "POST"):
    """Send one request to a server that writes these pieces and closes."""

    async def handle(reader, writer):
        await read_request(reader)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()
        await writer.wait_closed()

    async def run(port):
        return await Wire(f"http://127.0.0.1:{port}/v1").send(method, "/x", b"{}")

    with listening(handle) as (port, _):
        return asyncio.run(run(port))


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_bodies_come_by_length_in_chunks_or_to_the_end(size):
    plain = http_response(200, b"whole body")
    chunked = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5;x=1\r\nwhole\r\n5\r\n body\r\n0\r\nTrailer: 1\r\n\r\n"
    )
    to_the_end = b"HTTP/1.0 200 OK\r\nX: 1\r\n\r\nwhole body"
    announced = b"HTTP/1.1 100 Continue\r\n\r\n" + plain
    for response in (plain, chunked, to_the_end, announced):
        pieces = [response[i : i + size] for i in range(0, len(response), size)]
        assert wired(*pieces).body == b"whole body"


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (http_response(200, b"whole")[:-1], Dropped),
        (b"", Dropped),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwho", Dropped),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", NotHttp),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n", NotHttp),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", NotHttp),
        (b"\x15\x03\x03" * 40000, NotHttp),
    ],
)
def test_a_response_that_is_not_whole_raises(response, error):
    with pytest.raises(error):
        wired(response)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(data):
    from recollect.policies.http import _Connection

    async def run():
        connection = _Connection()

        class Transport:
            def write(self, message):
                connection.data_received(data)
                connection.connection_lost(None)

            def abort(self):
                pass

        connection.connection_made(Transport())
        with contextlib.suppress(Dropped, NotHttp):
            await connection.ask(b"", 1 << 20, asyncio.get_running_loop().time() + 9)

    asyncio.run(run())


def test_an_idle_connection_that_the_server_closed_is_no_failure():
    seen = []

    async def closing(reader, writer):
        await read_request(reader)
        seen.append(1)
        writer.write(OK)
        await writer.drain()

    with listening(closing) as (port, _):
        client = Client(Endpoint(f"http://127.0.0.1:{port}/v1"))

        async def run():
            for _ in range(4):
                await client.post("/completions", {}, lambda a: a)
            client.close()

        asyncio.run(run())
    assert len(seen) == 4 and not client.failures


def test_one_client_serves_event_loops_one_after_another():
    with token_server(TOKENIZER, hello) as server:
        model = connect(server.url, tokenizer=TOKENIZER)
        for _ in range(2):
            assert say(model, "x")[1][0].text == "th hello"


def test_endpoints_are_plain_settings():
    assert dataclasses.asdict(Endpoint("http://h/v1"))["timeout"] == 300.0
    with pytest.raises(UserError):
        Endpoint("http://h/v1", concurrency=0)

"""Servers are asked before a run starts, and refused by the setting that names them."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from recollect.errors import UserError
from recollect.models.connect import connect
from recollect.policies import presence
from recollect.policies.client import Endpoint
from recollect.policies.failures import TimedOut
from recollect.policies.presence import check_servers
from tests.support.chat_server import chat_server
from tests.support.token_server import http_response, listening, read_request


def closed_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


def refusal(endpoint: Endpoint, **settings) -> UserError:
    with pytest.raises(UserError) as caught:
        check_servers({"reward.judge_url": endpoint}, **settings)
    return caught.value


def test_nobody_there_is_named_by_the_setting():
    error = refusal(Endpoint(closed_port(), retries=0))
    assert error.what.startswith("reward.judge_url: no model answers at http://127.0.0.1")
    assert "--reward.judge-url" in error.fix


def test_a_server_that_is_there_is_only_listed():
    with chat_server(lambda _text: "OK", models=("a", "b")) as server:
        check_servers({"x": Endpoint(server.url), "y": Endpoint(server.url, "b")})
        assert server.asked == []
        error = refusal(Endpoint(server.url), strict=True)
        assert "serves 2 models" in error.what and "a, b" in error.fix


def test_a_model_that_is_not_listed_may_speak_all_the_same():
    with chat_server(lambda _text: "OK") as server:
        check_servers({"x": Endpoint(server.url, "an alias")})
        assert server.asked[0]["model"] == "an alias"
    with chat_server(lambda _text: 404) as server:
        assert "does not serve 'typo'" in refusal(Endpoint(server.url, "typo")).what


def test_a_server_that_has_moved_says_where_to():
    async def move(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(http_response(308, b"", "Location: https://elsewhere/v1/models"))

    with listening(move) as (port, _end):
        error = refusal(Endpoint(f"http://127.0.0.1:{port}/v1"))
    assert "308: it has moved to https://elsewhere/v1/models" in error.what


def test_it_works_inside_a_running_loop():
    async def inside() -> None:
        with chat_server(lambda _text: "OK") as server:
            check_servers({"x": Endpoint(server.url)})

    asyncio.run(inside())


# --- servers that list models, and do not speak ---------------------------------------------------

CHECKS = pytest.mark.parametrize(
    ("check", "model"),
    [(connect, "tiny"), (lambda endpoint: check_servers({"x": endpoint}), "not listed")],
)


@contextmanager
def listing(name: str, chat: Callable[[], bytes | None]) -> Iterator[str]:
    """Serve a list of one model; `chat` makes the answer to a message, None lets it wait."""
    listed = http_response(200, json.dumps({"data": [{"id": name}]}).encode())

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (head := await read_request(reader)) is not None:
            answer = listed if head[0].endswith("models") else chat()
            if answer is not None:
                writer.write(answer)

    with listening(handle) as (port, _end):
        yield f"http://127.0.0.1:{port}/v1"


@pytest.mark.usefixtures("heard")
@CHECKS
def test_an_interrupt_does_not_wait_for_an_answer(check, model):
    main = threading.main_thread().ident

    def interrupt() -> None:
        signal.pthread_kill(main, signal.SIGINT)

    with listing("tiny", interrupt) as url:
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            check(Endpoint(url, model, timeout=20.0))
        assert time.monotonic() - began < 10


@CHECKS
def test_a_server_that_is_waited_for_is_named(monkeypatch, capsys, check, model):
    monkeypatch.setattr(presence, "SILENCE", 0.0)
    with listing("tiny", lambda: None) as url:
        with pytest.raises(UserError, match="no whole answer") as caught:
            check(Endpoint(url, model, timeout=0.2))
        assert f"recollect: waiting for an answer from {url}\n" in capsys.readouterr().err
    assert "lists tiny, but" in caught.value.what


TOO_LARGE = http_response(400, b'{"error": {"message": "max_tokens too large"}}')


@pytest.mark.parametrize(
    ("answer", "reason", "fix"),
    [
        (TOO_LARGE, "400: max_tokens too large", "settings that allow this"),
        (http_response(429, b"{}"), "429", "wait until it takes requests again"),
        (http_response(200, b"<html>hi</html>"), "Expecting value", "its server's log"),
        (http_response(200, b'{"choices": [{"mess'), "Unterminated string", "its server's log"),
    ],
)
def test_a_listed_model_that_gives_no_good_reply_is_not_called_unlisted(answer, reason, fix):
    with listing("tiny", lambda: answer) as url, pytest.raises(UserError) as caught:
        connect(Endpoint(url, retries=0))
    says = f"{url} lists tiny, but to a short message it gives no reply that can be used ({reason}"
    assert caught.value.what.startswith(says)
    assert fix in caught.value.fix and "/v1" not in caught.value.fix


def test_a_server_that_does_not_answer_in_time_is_not_said_to_answer():
    error = presence.no_answer(Endpoint("http://there/v1"), TimedOut("no whole answer in 30 s"))
    assert error.what.startswith("no model answers at http://there/v1 (no whole answer in 30 s)")

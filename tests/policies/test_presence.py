"""Servers are asked before a run starts, and refused by the setting that names them."""

from __future__ import annotations

import asyncio
import socket

import pytest

from recollect.errors import UserError
from recollect.policies.client import Endpoint
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

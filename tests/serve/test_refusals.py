"""What a client does wrong is said in OpenAI's shape, and the server goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from recollect.serve.server import Serving
from tests.support.served import served

JSON = {"content-type": "application/json"}
USER = [{"role": "user", "content": "a"}]
TOOL = {"type": "function", "function": {"name": "f"}}


Answers = dict[str, httpx.Response]


def post(model, path: str, body: bytes, headers=JSON, **limits) -> httpx.Response:
    return post_all(model, path, {"it": body}, headers, **limits)["it"]


def post_all(model, path: str, bodies: Mapping[str, bytes], headers=JSON, **limits) -> Answers:
    """Return what one server answers to each, after which it must answer something good."""

    async def work(_client: AsyncOpenAI, server: Serving):
        url, answers = server.url.removesuffix("/v1") + path, {}
        async with httpx.AsyncClient(timeout=60) as client:
            for name, body in bodies.items():
                answers[name] = await client.post(url, content=body, headers=headers)
                good = await client.post(server.url + "/completions", json={"prompt": [5]})
                assert good.status_code == 200, (name, good.text)
        return answers

    return served(model, work, **limits)


def error(response: httpx.Response) -> dict:
    told = response.json()["error"]
    assert set(told) == {"message", "type", "param", "code"}
    assert "Traceback" not in response.text
    return told


WRONG = {
    "not JSON": (b'{"prompt": ', "not JSON", None),
    "a list": (b"[]", "object", None),
    "no prompt": (b"{}", "prompt", "prompt"),
    "a number": (b'{"prompt": 5}', "prompt", "prompt"),
    "mixed": (b'{"prompt": [1, "a"]}', "token ids", "prompt"),
    "a true token": (b'{"prompt": [1, true]}', "token ids", "prompt"),
    "empty": (b'{"prompt": ""}', "empty", "prompt"),
    "no prompts": (b'{"prompt": []}', "empty", "prompt"),
    "one empty": (b'{"prompt": [[5], []]}', "empty", "prompt"),
    "unknown token": (b'{"prompt": [5, 259]}', "259", "prompt"),
    "negative token": (b'{"prompt": [5, -1]}', "-1", "prompt"),
    "huge token": (b'{"prompt": [5, 99999999999999999999999]}', "", None),
    "a lone surrogate": (b'{"prompt": "\\ud800"}', "", None),
    "invalid UTF-8": (b'{"prompt": "\xff"}', "", None),
    "text for a number": (b'{"prompt": "a", "max_tokens": "5"}', "max_tokens", "max_tokens"),
    "negative": (b'{"prompt": "a", "max_tokens": -1}', "max_tokens", "max_tokens"),
    "no tokens": (b'{"prompt": "a", "max_tokens": 0}', "max_tokens", "max_tokens"),
    "temperature": (b'{"prompt": "a", "temperature": -1}', "temperature", "temperature"),
    "tiny temperature": (b'{"prompt": "a", "temperature": 1e-9}', "temperature", "temperature"),
    "not a number": (b'{"prompt": "a", "temperature": NaN}', "", None),
    "top_p": (b'{"prompt": "a", "top_p": 0}', "top_p", "top_p"),
    "n": (b'{"prompt": "a", "n": 100000}', "n", "n"),
    "an unknown setting": (b'{"prompt": "a", "grammar": "x"}', "grammar", "grammar"),
    "a penalty": (b'{"prompt": "a", "frequency_penalty": 1}', "frequency_penalty", None),
    "an empty stop": (b'{"prompt": "a", "stop": [""]}', "stop", "stop"),
    "other end tokens": (b'{"prompt": "a", "stop_token_ids": [3]}', "token 3", "stop_token_ids"),
    "streamed echo": (b'{"prompt": "a", "echo": true, "stream": true}', "streamed", None),
    "deep": (b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}", "", None),
}


@pytest.fixture(scope="module")
def refused(model) -> Answers:
    return post_all(model, "/v1/completions", {name: body for name, (body, *_) in WRONG.items()})


@pytest.mark.parametrize("name", WRONG)
def test_wrong_completions_are_refused(refused, name):
    _body, says, param = WRONG[name]
    response = refused[name]
    assert response.status_code == 400
    told = error(response)
    assert says in told["message"]
    assert param is None or told["param"] == param
    assert told["type"] == "invalid_request_error"


WRONG_CHATS = {
    "no messages": ({"messages": []}, "messages"),
    "an unknown role": ({"messages": [{"role": "root", "content": "a"}]}, "role"),
    "an image": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "type",
    ),
    "broken arguments": (
        {
            "messages": [
                *USER,
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "[1"}}],
                },
            ]
        },
        "JSON object",
    ),
    "a forced tool": (
        {"messages": USER, "tools": [TOOL], "tool_choice": "required"},
        "tool_choice",
    ),
    "a grammar": (
        {"messages": USER, "response_format": {"type": "json_object"}},
        "response_format",
    ),
    "top without logprobs": ({"messages": USER, "top_logprobs": 2}, "logprobs"),
    "a strange name": (
        {"messages": USER, "tools": [{"type": "function", "function": {"name": "f<|end|>"}}]},
        "name",
    ),
}


@pytest.fixture(scope="module")
def refused_chats(model) -> Answers:
    bodies = {name: json.dumps(body).encode() for name, (body, _says) in WRONG_CHATS.items()}
    return post_all(model, "/v1/chat/completions", bodies)


@pytest.mark.parametrize("name", WRONG_CHATS)
def test_wrong_chats_are_refused(refused_chats, name):
    _body, says = WRONG_CHATS[name]
    response = refused_chats[name]
    assert response.status_code == 400
    assert says in error(response)["message"]


def test_other_ways_to_be_wrong(model):
    assert post(model, "/v1/nothing", b"{}").status_code == 404
    response = post(model, "/v1/completions", b'{"prompt": "a"}', {"content-type": "text/plain"})
    assert response.status_code == 415 and "application/json" in error(response)["message"]
    big = b'{"prompt": "' + b"a" * 3000 + b'"}'
    response = post(model, "/v1/completions", big, body_bytes=2000)
    assert response.status_code == 413 and "2000 bytes" in error(response)["message"]


def test_openai_s_client_raises_its_own_errors(model):
    async def work(client: AsyncOpenAI, _server: Serving):
        with pytest.raises(openai.NotFoundError, match="only 'tiny'"):
            await client.completions.create(model="gpt", prompt="a")
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("../secret")
        with pytest.raises(openai.BadRequestError, match="window is 64") as raised:
            await client.completions.create(model="tiny", prompt=[5] * 64)
        assert raised.value.code == "context_length_exceeded"
        near = await client.completions.create(
            model="tiny", prompt=[5] * 62, max_tokens=50, temperature=0, seed=1
        )
        assert len(near.choices[0].token_ids) <= 2
        assert (await client.models.retrieve("tiny")).max_model_len == 64

    served(model, work, window=64)


def test_a_failing_engine_says_so_and_goes_on(model):
    class Broken:
        async def sample(self, *_args):
            raise RuntimeError("secret path")

    async def work(client: AsyncOpenAI, server: Serving):
        engine = server.service.engine
        whole, engine.policy = engine.policy, Broken()  # type: ignore[assignment]
        with pytest.raises(openai.InternalServerError) as raised:
            await client.completions.create(model="tiny", prompt="a")
        assert "secret" not in str(raised.value)
        stream = await client.completions.create(model="tiny", prompt="a", stream=True)
        with pytest.raises(openai.APIError, match="its log says why"):
            [chunk async for chunk in stream]
        engine.policy = whole
        await client.completions.create(model="tiny", prompt="a")
        assert server.service.in_flight == 0

    served(model, work)

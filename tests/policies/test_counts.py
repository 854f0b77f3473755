"""Counts that a server reports are checked against what was sent before anything adds them up."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from recollect.chat.chat import Model
from recollect.chat.rendering import user
from recollect.errors import BoundaryError, UserError
from recollect.evaluation.calls import CallLog, RecordedSpeaker
from recollect.models.connect import connect
from recollect.policies.client import Client, Endpoint
from recollect.policies.failures import BadReply, WrongTokens
from recollect.policies.served import EndpointSpeaker, read_completion, read_counts, read_spoken
from recollect.types import Sampling
from tests.support.bytes_tokenizer import ByteTokenizer
from tests.support.token_server import http_response, listening, read_request, token_server

ABSURD: list[Any] = [10**30, -5, 2.5, "7", True, float("nan"), [1], {"a": 1}, 10**6]
TOKENIZER = ByteTokenizer()


@pytest.mark.parametrize("count", ABSURD)
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
def test_a_count_that_cannot_be_true_is_counted_as_a_fault_and_nowhere_else(name, count, tmp_path):
    def edit(answer: dict[str, Any]) -> dict[str, Any]:
        answer["usage"] = answer["usage"] | ({name: count} if len(server.asked) == 3 else {})
        return answer

    speak = lambda request: {"content": "Hi."}  # noqa: E731
    with token_server(TOKENIZER, None, speak, edit=edit) as server:
        model = connect(server.url)  # asks once
        assert isinstance(model.policy, EndpointSpeaker)
        client = model.policy.client
        before = dict(client.tokens)
        log = CallLog(tmp_path / "calls.jsonl", ())
        calls = log.of("a")

        async def ask() -> list[str]:
            policy = RecordedSpeaker(model.policy, "answer", calls)
            messages = [{"role": "user", "content": "hello"}]
            said = [await policy.reply(messages, (), Sampling(16, seed=i)) for i in range(3)]
            client.close()
            return [spoken.text for spoken in said]

        assert asyncio.run(ask()) == ["Hi."] * 3  # nothing that was said is lost
    assert client.failures == {"WrongCounts": 1}
    added = {key: client.tokens[key] - before[key] for key in before}
    assert added == {"prompt": 2 * 7, "sampled": 2 * 3}
    assert calls.counted == {}  # our own counts are used for a role with a call without one


def test_counts_are_compared_with_what_was_sent_and_asked_for():
    usage = {"prompt_tokens": 50, "completion_tokens": 16}
    assert read_counts({"usage": usage}, 50, 16) == (50, 16)
    assert read_counts({"usage": usage}, 49, 16) is None
    assert read_counts({"usage": usage}, 50, 15) is None
    assert read_counts({}, 50, 16) == read_counts({"usage": "x"}, 50, 16) == (0, 0)
    assert read_counts({"usage": {"prompt_tokens": None}}, 50, 16) == (0, 0)


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": 7, "completion_tokens": 50}])
def test_a_server_that_ignores_the_limit_is_refused(usage):
    said = ["Hi."]

    def edit(answer: dict[str, Any]) -> dict[str, Any]:
        return answer | {"usage": usage}

    with token_server(TOKENIZER, None, lambda request: {"content": said[0]}, edit=edit) as server:
        policy = connect(server.url).policy
        assert isinstance(policy, EndpointSpeaker)

        async def ask(limit: int) -> str:
            try:
                return (
                    await policy.reply([{"role": "user", "content": "a"}], (), Sampling(limit))
                ).text
            finally:
                policy.client.close()

        said[0] = "word " * 50
        assert asyncio.run(ask(50)) == said[0]
        with pytest.raises(BoundaryError, match="50 words, though at most 49 tokens"):
            asyncio.run(ask(49))


def test_a_server_may_have_tokens_of_several_words():
    edit = lambda answer: answer | {"usage": {"prompt_tokens": 7, "completion_tokens": 9}}  # noqa: E731
    with token_server(
        TOKENIZER, None, lambda request: {"content": "a b " * 9}, edit=edit
    ) as server:
        policy = connect(server.url).policy
        assert isinstance(policy, EndpointSpeaker)
        reply = policy.reply([{"role": "user", "content": "a"}], (), Sampling(9))
        assert len(asyncio.run(reply).text.split()) == 18


def test_by_tokens_our_own_counts_are_the_only_ones():
    def edit(answer: dict[str, Any]) -> dict[str, Any]:
        return answer | {"usage": {"prompt_tokens": 10**30, "completion_tokens": -1}}

    with token_server(TOKENIZER, lambda prompt, _: [*b" hello"], edit=edit) as server:
        model = connect(server.url, tokenizer=TOKENIZER)
        before = dict(model.policy.client.tokens)
        prompt = model.renderer.opening([user("x")])
        asyncio.run(model.policy.sample(prompt, Sampling(16)))
    after = model.policy.client.tokens
    assert after["prompt"] - before.get("prompt", 0) == len(prompt)
    assert after["sampled"] - before.get("sampled", 0) == 6


def choice(ids: Any, logprobs: Any, **more: Any) -> dict[str, Any]:
    own = {"token_ids": ids, "logprobs": {"token_logprobs": logprobs}, "finish_reason": "stop"}
    return {"choices": [own | more]}


@pytest.mark.parametrize(
    "answer",
    [
        choice([97], [float("inf")]),
        choice([97], [float("-inf")]),
        choice([97], [-(10**400)]),
        choice([97], [10**400]),
        choice([97], [True]),
        choice([97], ["-1"]),
        choice([10**400], [-1.0]),
        choice([97.0], [-1.0]),
        choice([97], [-1.0, -1.0]),
        choice([97], []),
        choice({"0": 97}, [-1.0]),
        choice([97], [-1.0], finish_reason="x" * 10**6),
        {"choices": [[]]},
        {"choices": {"0": {}}},
    ],
)
def test_no_absurd_token_or_logprob_reaches_a_turn(answer):
    with pytest.raises((BadReply, WrongTokens)) as caught:
        read_completion(answer, [1], 3, 260)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "message",
    [[], "x", {"content": 5}, {"tool_calls": 5}, {"tool_calls": [5]}, {"tool_calls": {"a": 1}}],
)
def test_messages_of_other_shapes_are_refused(message):
    with pytest.raises(BadReply):
        read_spoken({"choices": [{"message": message, "finish_reason": "stop"}]})


@pytest.mark.parametrize(
    "listed", [5, None, "id", [5], [None], ["id"], [{"id": 5}], [{"id": ""}], [{"id": "x" * 5000}]]
)
def test_a_server_that_lists_no_usable_name_is_one_message(listed):
    async def handle(reader, writer):
        await read_request(reader)
        writer.write(http_response(200, json.dumps({"data": listed}).encode()))

    with listening(handle) as (port, _), pytest.raises(UserError, match="serves no model"):
        connect(Endpoint(f"http://127.0.0.1:{port}/v1"))


def test_a_window_that_cannot_be_true_is_not_believed():
    speak = lambda request: {"content": "Hi."}  # noqa: E731
    for told in (True, -1, 2.5, "9", 10**30):
        with token_server(TOKENIZER, None, speak, max_model_len=told) as server:
            model: Model = connect(server.url)
        assert model.window == 1 << 30


def test_a_key_that_no_header_can_carry_is_one_message_without_the_key(monkeypatch):
    monkeypatch.setenv("ODD_KEY", "sk-secret\r\nX: 1")
    client = Client(Endpoint("http://127.0.0.1:1/v1", api_key_env="ODD_KEY"))
    with pytest.raises(UserError, match="ODD_KEY") as caught:
        asyncio.run(client.get("/models"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://h:99999/v1", "http://h:x/v1", "http://[::1/v1", "http://h:0"]
)
def test_addresses_that_cannot_be_are_one_message(url):
    with pytest.raises(UserError, match="not the address"):
        Endpoint(url)

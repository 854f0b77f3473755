"""Fixed models that are asked for text: what is sent, read, refused and tried again."""

from __future__ import annotations

import asyncio
import json

import pytest

from recollect.errors import UserError
from recollect.memory.embeddings.endpoint import EndpointEmbedder
from recollect.policies.cached import RemoteModel
from recollect.policies.failures import BadReply, Filtered, Rejected, TimedOut
from recollect.rewards.judge import Judge
from recollect.types import Question
from tests.support.chat_server import chat_server
from tests.support.token_server import http_response, listening, read_request


def ask(model: RemoteModel, *texts: str) -> list[str]:
    async def main() -> list[str]:
        return list(await asyncio.gather(*(model("Read.", text) for text in texts)))

    return asyncio.run(main())


def replying(*bodies: object):
    """Answer every request with the next of the bodies; None leaves it without an answer."""
    left = list(bodies)

    async def handle(reader, writer):
        while await read_request(reader) is not None:
            body = left.pop(0)
            if body is None:
                await asyncio.sleep(5)
            writer.write(http_response(200, json.dumps(body).encode()))
            await writer.drain()

    return handle


def chat_reply(text: str | None, **choice) -> dict:
    return {"choices": [{"message": {"content": text}, **choice}]}


def test_the_request_is_greedy_and_one_user_message():
    with chat_server(lambda text: text.upper()) as server:
        assert ask(RemoteModel(server.url, max_tokens=7), "one") == ["READ.\n\nONE"]
    assert server.asked == [
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "Read.\n\none"}],
            "max_tokens": 7,
            "temperature": 0.0,
        }
    ]


def test_what_was_thought_is_left_out_and_odd_ends_are_taken():
    bodies = (chat_reply("<think>hm</think> yes "), chat_reply("no", finish_reason="eos"))
    with listening(replying(*bodies)) as (port, _):
        model = RemoteModel(f"http://127.0.0.1:{port}/v1", "m")
        assert ask(model, "a") + ask(model, "b") == ["yes", "no"]


@pytest.mark.parametrize(
    "body", [{}, {"choices": []}, {"choices": [{"message": None}]}, chat_reply(["a"])]
)
def test_an_answer_without_a_message_is_a_failure(body):
    with listening(replying(body)) as (port, _), pytest.raises(BadReply):
        ask(RemoteModel(f"http://127.0.0.1:{port}/v1", "m", retries=0), "a")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (chat_reply("WRONG", finish_reason="content_filter"), Filtered),
        (chat_reply('<think>I say {"label": "WRONG"} or', finish_reason="length"), ValueError),
    ],
)
def test_what_was_withheld_or_only_thought_is_no_answer(body, error):
    with listening(replying(body)) as (port, _), pytest.raises(error):
        ask(RemoteModel(f"http://127.0.0.1:{port}/v1", "m", retries=0), "a")


def test_a_verdict_that_was_cut_off_is_none():
    """A model whose thinking is not marked repeats both labels before it comes to its own."""
    cut = chat_reply('I may say {"label": "CORRECT"} or {"label": "WRONG"}', finish_reason="length")
    with listening(replying(cut, cut)) as (port, _):
        model = RemoteModel(f"http://127.0.0.1:{port}/v1", "m", retries=0)
        with pytest.raises(BadReply, match="m was cut off"):
            asyncio.run(Judge(model)(Question("Who?", ("Ada",)), "Ada"))
        assert ask(model, "a")  # of a reader, it may be an answer


def test_a_call_that_timed_out_is_tried_again():
    with listening(replying(None, chat_reply("late"))) as (port, _):
        model = RemoteModel(f"http://127.0.0.1:{port}/v1", "m", timeout=0.2)
        assert ask(model, "a") == ["late"]
    with listening(replying(None)) as (port, _):
        model = RemoteModel(f"http://127.0.0.1:{port}/v1", "m", timeout=0.2, retries=0)
        with pytest.raises(TimedOut):
            ask(model, "a")


def test_a_request_that_is_refused_is_asked_once():
    with chat_server(lambda _text: 400) as server:
        with pytest.raises(Rejected, match="400: no"):
            ask(RemoteModel(server.url), "a")
        assert len(server.asked) == 1


def test_an_address_that_is_none_is_refused_when_it_is_given():
    with pytest.raises(UserError, match="is not the address of a server"):
        RemoteModel("localhost:8000")


def test_listed_models_that_cannot_be_read_are_a_failure():
    with listening(replying({"models": []})) as (port, _), pytest.raises(BadReply, match="models"):
        ask(RemoteModel(f"http://127.0.0.1:{port}/v1", retries=0), "a")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"data": [{"embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]},
        {"data": [{"index": 0, "embedding": ["x"]}]},
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [2.0]}]},
        {"data": [{"index": 1, "embedding": [1.0]}]},
    ],
)
def test_vectors_that_cannot_be_read_are_a_failure(body):
    with listening(replying(body)) as (port, _), pytest.raises(BadReply, match="vectors"):
        asyncio.run(EndpointEmbedder(f"http://127.0.0.1:{port}/v1", "m", retries=0).embed(["a"]))


def test_an_embedder_tries_again():
    row = {"index": 0, "embedding": [3.0, 4.0]}
    with listening(replying(None, {"data": [row]})) as (port, _):
        embedder = EndpointEmbedder(f"http://127.0.0.1:{port}/v1", "m", timeout=0.2)
        assert asyncio.run(embedder.embed(["a"])).tolist() == [[3.0, 4.0]]

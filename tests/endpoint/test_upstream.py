"""The endpoint before another server, used by OpenAI's own client in a process of its own."""

from __future__ import annotations

from pathlib import Path

import openai
import pytest
from openai import OpenAI

from tests.support.endpoint import started
from tests.support.upstream import Upstream, upstream


def said(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def conversation(turns: int, name: str = "a") -> list[dict[str, str]]:
    """Return a long talk with one fact in each of the user's messages."""
    found = [said("system", "Be brief.")]
    for i in range(turns):
        found.append(said("user", f"Remember fact{name}{i}. " + "It is so. " * 40))
        found.append(said("assistant", "Yes. " * 10))
    return [*found, said("user", "What do you know?")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("endpoint")


@pytest.fixture(scope="module")
def server():
    with upstream() as server:
        yield server


@pytest.fixture(scope="module")
def url(folder: Path, server: Upstream):
    args = ("--upstream", server.url, "--memory-tokens", "400", "--upstream-seconds", "1")
    with started(folder, *args) as running:
        yield running.url


@pytest.fixture
def client(url: str):
    with OpenAI(base_url=url, api_key="none", max_retries=0, timeout=30) as client:
        yield client


def test_a_short_chat_is_passed_on_untouched(client: OpenAI, server: Upstream):
    messages = [said("system", "Be brief."), said("user", "factshort")]
    reply = client.chat.completions.create(
        model="scripted", messages=messages, temperature=0.3, stop=["x"], n=2, seed=4,
        response_format={"type": "json_object"}, extra_body={"own_setting": [1]},
    )  # fmt: skip
    sent = server.chats[-1]
    assert sent["messages"] == messages and len(reply.choices) == 2
    asked = {name: sent[name] for name in ("temperature", "stop", "n", "seed", "own_setting")}
    assert asked == {"temperature": 0.3, "stop": ["x"], "n": 2, "seed": 4, "own_setting": [1]}
    assert sent["response_format"] == {"type": "json_object"}
    assert reply.usage and reply.usage.total_tokens == 10
    assert reply.recollect["memory"] is None and reply.recollect["reading"]["calls"] == 0


def test_a_long_conversation_is_folded_and_read_once(client: OpenAI, server: Upstream):
    messages = conversation(20)
    before = len(server.readings)
    ask = lambda: client.chat.completions.create(model="scripted", messages=messages, user="anna")  # noqa: E731
    first = ask()
    sent = server.chats[-1]["messages"]
    # The system message comes first with the memory, the newest messages as they were.
    assert sent[0]["content"].startswith("Be brief.\n\n") and "facta0" in sent[0]["content"]
    assert sent[1:] == messages[-len(sent) + 1 :] and sent[1]["role"] == "user"
    assert all(f"facta{i}" in first.choices[0].message.content for i in range(20))
    receipt = first.recollect
    reads = len(server.readings) - before
    assert receipt["user"] == "anna" and receipt["reading"]["calls"] == reads > 1
    assert receipt["memory"]["items"] >= len(receipt["read"]) > 10 and receipt["tokens_read"] > 1000

    assert ask().recollect["reading"]["calls"] == 0 and len(server.readings) == before + reads
    calls = []
    for i in range(20, 40):
        messages = [*messages[:-1], *conversation(i + 1)[1 + 2 * i :]]
        calls.append(ask().recollect["reading"]["calls"])
    # Twenty more turns are several windows; each was read once, and a part of one again.
    assert len(server.readings) == before + reads + sum(calls)
    assert sum(calls) < 20 and calls.count(0) > 10
    assert all(len(str(chat["messages"])) < 3 * 2048 for chat in server.chats)


def test_a_document_longer_than_the_window_is_read_into_the_memory(client, server):
    words = [f"word{i}" for i in range(12000)]
    words[6000] = "factmiddle"
    question = " What is the fact?"
    for text in (
        "Look: " + " ".join(words) + question,
        [{"type": "text", "text": " ".join(words)}],
    ):
        reply = client.chat.completions.create(
            model="scripted", messages=[{"role": "user", "content": text}]
        )
        assert "factmiddle" in reply.choices[0].message.content
        sent = server.chats[-1]["messages"][-1]["content"]
        assert sent.startswith(("Look: word0", "word0"))
        assert sent.endswith(question) or sent.endswith("word11999")
        assert len(reply.recollect["shortened"]) == 1


def test_streams_carry_the_receipt_at_the_end(client: OpenAI, server: Upstream):
    stream = client.chat.completions.create(
        model="scripted", messages=conversation(20, "s"), user="stream", stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert "facts0" in text and "facts19" in text
    assert chunks[-1].usage.total_tokens == 10 and chunks[-1].recollect["user"] == "stream"
    assert not any(hasattr(chunk, "recollect") for chunk in chunks[:-1])


@pytest.mark.parametrize("stream", [False, True])
def test_tools_and_their_calls_pass_untouched(client: OpenAI, server: Upstream, stream: bool):
    parameters = {"type": "object", "properties": {"at": {"type": "integer"}}}
    tools = [{"type": "function", "function": {"name": "look", "parameters": parameters}}]
    call = {"id": "c0", "type": "function", "function": {"name": "look", "arguments": '{"at": 0}'}}
    messages = conversation(20, "t")[:-1]
    messages += [
        said("user", "Look."),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c0", "content": "seen " * 3000 + "factend"},
    ]
    reply = client.chat.completions.create(
        model="scripted", messages=messages, tools=tools, tool_choice="auto", stream=stream
    )
    sent = server.chats[-1]
    assert sent["tools"] == tools and sent["tool_choice"] == "auto"
    # The result is too long and shown in part; its call stays in front of it.
    assert sent["messages"][-2] == messages[-2] and sent["messages"][-3] == messages[-3]
    assert sent["messages"][-1]["content"].endswith("factend")
    if stream:
        deltas = [chunk.choices[0].delta for chunk in reply]
        found = next(delta.tool_calls for delta in deltas if delta.tool_calls)
    else:
        found = reply.choices[0].message.tool_calls
    assert found[0].function.name == "look" and found[0].function.arguments == '{"at": 1}'


@pytest.mark.parametrize(
    ("fault", "error", "says"),
    [
        ("500", openai.InternalServerError, "answered 500: no"),
        ("400", openai.BadRequestError, "answered 400: no"),
        ("429", openai.RateLimitError, "answered 429"),
        ("401", openai.InternalServerError, "answered 401"),
        ("hang", openai.InternalServerError, "too slow"),
        ("drop", openai.InternalServerError, "closed the connection"),
        ("html", openai.InternalServerError, "JSON"),
    ],
)
def test_a_failing_upstream_is_an_error_of_openais_kind(client, server, fault, error, says):
    server.fault = fault
    try:
        with pytest.raises(error, match=says) as raised:
            client.chat.completions.create(model="scripted", messages=[said("user", "hi")])
        assert raised.value.body["message"] and "Traceback" not in str(raised.value)
    finally:
        server.fault = ""


@pytest.mark.parametrize("fault", ["garbage", "cut", "empty", "500", "hang"])
def test_a_stream_that_breaks_ends_with_an_error(client, server, fault):
    server.fault = fault
    try:
        with pytest.raises(openai.APIError, match="server"):
            list(
                client.chat.completions.create(
                    model="scripted", messages=[said("user", "hi")], stream=True
                )
            )
    finally:
        server.fault = ""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"messages": []}, "at least one"),
        ({"messages": [{"role": "king", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": 5}]}, "content"),
        ({"messages": [{"role": "system", "content": "x"}]}, "system"),
        ({"n": 0}, "n: "),
        ({"user": "a\nb"}, "printable"),
        ({"user": "a" * 300}, "256"),
        ({"stream": "yes"}, "stream"),
        ({"model": "other"}, "no model"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_read(client, server, change, says):
    asked = len(server.readings), len(server.chats)
    body = {"model": "scripted", "messages": [said("user", "hi")], **change}
    with pytest.raises(openai.APIStatusError, match=says) as raised:
        client.post("/chat/completions", body=body, cast_to=object)
    assert raised.value.status_code in (400, 404)
    assert asked == (len(server.readings), len(server.chats))

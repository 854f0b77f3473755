"""Chats with servers that take messages: what is sent and counted, and is never trained."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.advantages import grpo
from recollect.agents.fold import FoldAgent
from recollect.chat.chat import Chats, ContextFull, Model
from recollect.chat.messages import Dialogue
from recollect.chat.policy import Spoken, SpokenCall
from recollect.chat.rendering import Renderer, system, tool, user
from recollect.chat.tool_loop import converse
from recollect.chat.tools import Limits, ToolBox
from recollect.chat.tools import tool as make_tool
from recollect.errors import UserError
from recollect.models.connect import connect
from recollect.policies.bytes import Utf8Tokenizer
from recollect.rewards.answers import AnswerReward
from recollect.rollout import Rollout
from recollect.samples import make_sample, make_samples
from recollect.types import Question, Sampling, Task
from tests.support.bytes_tokenizer import ByteTokenizer
from tests.support.token_server import token_server

TOKENIZER = ByteTokenizer()


@make_tool
def look(word: str) -> str:
    """Look a word up."""
    return f"{word} means nothing"


def call(number: int, arguments: str = '{"word": "x"}', name: str = "look") -> dict:
    return {
        "id": f"call-{number}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def with_tools(*replies: dict, limits: Limits = Limits(max_parallel_calls=4)):
    """Let a server reply with these messages in turn; return the requests and the transcript."""
    left = iter([{"content": "OK."}, *replies])
    with token_server(TOKENIZER, None, lambda request: next(left)) as server:
        model = connect(server.url)
        toolbox = ToolBox((look,), limits)
        chat = Chats({"memory": model}, (0,)).open("memory", tools=toolbox.schemas)
        opening = [system("Be brief."), user("Go.")]
        transcript = asyncio.run(converse(chat, opening, toolbox))
    return server.asked[1:], transcript, chat.context


def test_tool_calls_and_answers_keep_their_structure():
    requests, transcript, context = with_tools(
        {"content": "Let me see.", "tool_calls": [call(1), call(2, '{"word": "y"}')]},
        {"content": None, "tool_calls": [call(3)]},
        {"content": "DONE"},
    )
    assert requests[0]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Go."},
    ]
    assert requests[0]["tools"] == [look.schema]
    sent = requests[2]["messages"]
    assert [m["role"] for m in sent] == [
        *("system", "user", "assistant", "tool", "tool", "assistant", "tool")
    ]
    assert sent[2]["content"] == "Let me see." and sent[2]["tool_calls"][1] == call(
        2, '{"word": "y"}'
    )
    assert sent[3] == {
        "role": "tool",
        "tool_call_id": "call-1",
        "content": "x means nothing",
    }
    assert sent[6]["tool_call_id"] == "call-3"
    assert transcript.ended == "done" and transcript.turns == 3
    assert context.counts["ok"] == 3 and context.counts["malformed"] == 0
    assert not context.exact and all(turn.logprobs == () for turn in context.turns)


def test_broken_arguments_are_answered_and_text_calls_too():
    requests, transcript, context = with_tools(
        {"content": "", "tool_calls": [call(1, '{"word": ')]},
        {"content": '<tool_call>{"name": "look", "arguments": {"word": "z"}}</tool_call>'},
        {"content": "no more"},
    )
    assert context.counts["malformed"] == 1 and context.counts["ok"] == 1
    assert "JSON is broken" in requests[1]["messages"][-1]["content"]
    # The server took this for text, so the answer to it cannot name a call.
    assert requests[2]["messages"][-1] == {
        "role": "user",
        "content": "<tool_response>\nz means nothing\n</tool_response>",
    }
    assert transcript.ended == "no call" and transcript.text == "no more"


def test_calls_that_nobody_answers_are_sent_as_text():
    renderer = Renderer(TOKENIZER)
    calls = (SpokenCall("a", "look", '{"word": "x"}'), SpokenCall("b", "look", "{}"))
    talk = Dialogue()
    talk.add([{"role": "user", "content": "Go."}], Spoken("Hm.", "stop", calls))
    sent = talk.followed_by([user("Never mind.")], renderer)
    assert sent[1]["role"] == "assistant" and "tool_calls" not in sent[1]
    assert sent[1]["content"].count("<tool_call>") == 2
    sent = talk.followed_by([tool("found")], renderer)
    assert [c["id"] for c in sent[1]["tool_calls"]] == ["a"]
    assert sent[1]["content"].count("<tool_call>") == 1
    assert sent[2]["tool_call_id"] == "a"
    sent = talk.followed_by([tool("1"), tool("2"), tool("3"), user("?")], renderer)
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert sent[-1]["content"] == "<tool_response>\n3\n</tool_response>\n?"


answers = st.lists(st.sampled_from(["tool", "user"]), max_size=5)


@given(st.integers(0, 4), answers)
def test_every_call_sent_is_answered_once_and_in_order(calls, roles):
    said = Spoken("x", "stop", tuple(SpokenCall(f"c{i}", "look", "{}") for i in range(calls)))
    talk = Dialogue()
    talk.add([{"role": "user", "content": "Go."}], said)
    messages = [tool(str(i)) if r == "tool" else user(str(i)) for i, r in enumerate(roles)]
    sent = talk.followed_by(messages, Renderer(TOKENIZER))
    told = [c["id"] for m in sent for c in m.get("tool_calls", ())]
    assert told == [m["tool_call_id"] for m in sent if m["role"] == "tool"]
    text = json.dumps(sent)
    assert all(str(i) in text for i in range(len(roles)))
    assert not any(a["role"] == b["role"] == "user" for a, b in itertools.pairwise(sent))


def test_no_template_is_ever_inside_a_message_and_tokens_become_text():
    with token_server(TOKENIZER, None, lambda request: {"content": "OK \\boxed{w}"}) as server:
        model = connect(server.url, tokenizer=TOKENIZER)
        task = Task("t", ("The word is w.", "Rain."), (Question("Which?", ("w",)),))
        rollout = Rollout(
            FoldAgent(chunk_size=7), {"memory": model, "answer": model}, AnswerReward()
        )
        episode = asyncio.run(rollout.episode(task, 0, (0,)))
    assert episode.ok and episode.reward == 1.0
    for request in server.asked[2:]:
        (message,) = request["messages"]
        assert message["role"] == "user" and "<|start|>" not in json.dumps(message)
    assert "The wor" in server.asked[2]["messages"][0]["content"]
    assert "OK \\boxed{w}" in server.asked[-1]["messages"][0]["content"]  # the memory


def test_a_server_that_tells_no_tokens_is_never_trained_on():
    with token_server(TOKENIZER, None, lambda request: {"content": "x"}) as server:
        model = connect(server.url, tokenizer=TOKENIZER)
        with pytest.raises(
            UserError, match="cannot train a model whose server returns no token ids"
        ):
            Model(model.policy, model.renderer, trainable=True)
        task = Task("t", ("Rain.",), (Question("Which?", ("w",)),))
        rollout = Rollout(
            FoldAgent(chunk_size=None), {"memory": model, "answer": model}, AnswerReward()
        )
        episode = asyncio.run(rollout.episode(task, 0, (0,)))
    assert make_samples([[episode, episode]], grpo) == []
    context = episode.contexts[0]
    context.trainable = True  # whatever a flag says
    with pytest.raises(ValueError, match="not those of its model"):
        make_samples([[episode, episode]], grpo)
    with pytest.raises(ValueError, match="chunk 1"):
        make_sample(context, 1.0, 0, 0)


# --- counting in bytes ---------------------------------------------------------------------------


@given(st.text(), st.booleans())
def test_bytes_count_and_come_back(text, control):
    tokenizer = Utf8Tokenizer()
    ids = tokenizer.encode(text, control)
    assert max(ids, default=0) < tokenizer.vocab_size
    if not control:
        assert tokenizer.decode(ids) == text.encode(errors="replace").decode()
        assert len(ids) == len(text.encode(errors="replace"))


def test_a_window_in_estimated_tokens_is_kept():
    with token_server(
        TOKENIZER, None, lambda r: {"content": "y" * 150}, max_model_len=400
    ) as server:
        model = connect(server.url, sampling=Sampling(max_tokens=64))
        assert model.window == 400
        chat = Chats({"answer": model}, (0,)).open("answer")

        async def talk():
            for _ in range(9):
                await chat.say(user("x" * 90))

        with pytest.raises(ContextFull):
            asyncio.run(talk())
    said = sum(len(m["content"]) for m in server.asked[-1]["messages"])
    assert 300 < said < 3 * 400  # three bytes count as a token

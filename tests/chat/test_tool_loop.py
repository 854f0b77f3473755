"""A chat with tools: how it goes on, how it ends, and that it never ends on an observation."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.chat.chat import Chat, Chats, ContextFull, Model
from recollect.chat.rendering import Renderer, user
from recollect.chat.tool_loop import Transcript, converse
from recollect.chat.tools import Limits, ToolBox, ToolFailed, tool
from recollect.policies.scripted import ScriptedPolicy, replies
from tests.support.bytes_tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()


@tool
async def echo(text: str) -> str:
    """Say it again."""
    if not text:
        raise ToolFailed("Nothing to say.")
    return text


def call(text: str = "hello", name: str = "echo") -> str:
    body = json.dumps({"name": name, "arguments": {"text": text}})
    return f"<tool_call>{body}</tool_call>"


def run(
    said: list[str], window: int = 1 << 20, last_word: str = "", **limits
) -> tuple[Transcript, Chat]:
    toolbox = ToolBox((echo,), Limits(**limits))
    model = Model(ScriptedPolicy(TOKENIZER, replies(said)), Renderer(TOKENIZER), window=window)
    chat = Chats({"memory": model}, (0,)).open("memory", tools=toolbox.schemas)
    return asyncio.run(converse(chat, [user("go")], toolbox, last_word=last_word)), chat


def shown(chat: Chat) -> str:
    return TOKENIZER.show(chat.context.ids)


def test_calls_are_answered_until_there_is_none():
    transcript, chat = run([call("one"), call("two"), "That is all."])
    assert (transcript.turns, transcript.ended, transcript.text) == (3, "no call", "That is all.")
    assert "<|start|>tool\none<|end|>" in shown(chat) and "<|start|>tool\ntwo<|end|>" in shown(chat)
    assert chat.context.counts["calls"] == chat.context.counts["ok"] == 2


def test_done_ends_the_chat_and_its_last_call_is_still_carried_out():
    transcript, chat = run([call("one"), f"{call('two')}\n**DONE.**"])
    assert transcript.ended == "done" and [a.text for a in transcript.answers] == ["one", "two"]
    assert shown(chat).endswith("DONE.**<|end|>")
    assert run([f"I am not DONE yet. {call()}", "DONE"])[0].turns == 2


def test_turns_are_limited():
    transcript, chat = run([call()] * 9, max_assistant_turns=3)
    assert (transcript.turns, transcript.ended, len(transcript.answers)) == (3, "turns", 3)
    assert len(chat.context.ids) == chat.context.turns[-1].end


def test_a_malformed_call_is_answered_and_the_chat_goes_on():
    transcript, chat = run(["<tool_call>{</tool_call>", call(name="eco"), call(""), call(), "DONE"])
    assert transcript.turns == 5 and "<|start|>tool\nError: the JSON is broken" in shown(chat)
    expected = {"calls": 4, "ok": 1, "failed": 2, "malformed": 1, "refused": 0, "calls/echo": 2}
    assert chat.context.counts == expected


def test_several_calls_are_answered_in_one_go():
    transcript, chat = run([call("one") + call("two"), "DONE"])
    assert [a.outcome for a in transcript.answers] == ["ok", "refused"]
    assert "<|start|>tool\nError: not carried out" in shown(chat)


def first_turn(text: str) -> int:
    """Return the tokens up to the end of the first turn."""
    return run([text, "DONE"], max_turn_tokens=4000)[1].context.turns[0].end


def test_a_response_that_does_not_fit_is_cut_to_leave_room_for_a_reply():
    said = call("y" * 600)
    most = first_turn(said) + 500
    transcript, chat = run([said, "ok"], max_context_tokens=most, min_reply_tokens=100)
    assert transcript.turns == 2 and "characters left out" in shown(chat)
    assert most - 110 < chat.context.turns[1].start <= most - 100
    transcript, chat = run([said, "ok"], most + 300, min_reply_tokens=100)
    assert transcript.turns == 2 and "characters left out" not in shown(chat)


def test_several_responses_are_cut_alike():
    said = call("y" * 600) + call("z" * 600)
    most = first_turn(said) + 700
    transcript, chat = run([said, "ok"], most, max_parallel_calls=2, max_turn_tokens=4000)
    assert transcript.turns == 2 and shown(chat).count("characters left out") == 2


def test_the_chat_ends_before_a_response_that_leaves_no_room():
    said = call("y" * 600)
    most = first_turn(said) + 120
    transcript, chat = run([said, "never said"], max_context_tokens=most)
    assert (transcript.ended, transcript.turns) == ("room", 1)
    assert len(chat.context.ids) == chat.context.turns[-1].end


def test_the_last_word_comes_before_the_last_turn_and_when_room_runs_out():
    said = [call("one"), call("two"), "the end"]
    _, chat = run(said, last_word="Finish.", max_assistant_turns=3)
    assert shown(chat).count("Finish.") == 1 and "tool\ntwo\n\nFinish.<|end|>" in shown(chat)
    _, chat = run([*said[:1], "the end"], last_word="Finish.", max_assistant_turns=3)
    assert "Finish." not in shown(chat)
    long = call("y" * 600)
    most = first_turn(long) + 500
    transcript, chat = run([long, "ok"], most, last_word="Finish.", min_reply_tokens=100)
    assert transcript.turns == 2 and "characters left out" in shown(chat)
    assert shown(chat).count("y\n\nFinish.<|end|>") == 1
    assert most - 110 < chat.context.turns[1].start <= most - 100


def test_an_opening_that_leaves_no_room_is_an_error():
    with pytest.raises(ContextFull, match="too many for max_context_tokens"):
        run(["x"], max_context_tokens=20)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 900), st.booleans()), min_size=1, max_size=5),
    st.integers(400, 3000),
    st.integers(1, 200),
    st.sampled_from(["head", "tail", "middle"]),
)
def test_a_context_stays_in_its_limit_and_ends_on_a_reply(said, most, room, truncation):
    texts = [call("é" * (n // 2) if odd else "z" * n) for n, odd in said]
    try:
        _, chat = run(
            [*texts, "DONE"],
            max_context_tokens=most,
            min_reply_tokens=room,
            truncation=truncation,
        )
    except ContextFull:
        return
    turns = chat.context.turns
    assert len(chat.context.ids) == turns[-1].end <= most
    assert all(turn.start <= most - room for turn in turns[1:])

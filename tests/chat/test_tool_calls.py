"""Tool calls in text: every form is read, and what is malformed is never ignored."""

from __future__ import annotations

import asyncio
import inspect
import json

import pytest

from recollect.chat.chat import Chats, Model
from recollect.chat.rendering import Renderer, user
from recollect.chat.tool_calls import MAX_CALLS, Parsed, parse_reply, read_calls
from recollect.chat.tools import Call, Malformed
from recollect.errors import UserError
from recollect.policies.scripted import ScriptedPolicy, replies
from tests.support.bytes_tokenizer import ByteTokenizer


def wrapped(body: str) -> str:
    return f"<tool_call>{body}</tool_call>"


def call(name: str = "find", **arguments) -> str:
    return wrapped(json.dumps({"name": name, "arguments": arguments}))


def problems(text: str) -> list[str]:
    return [c.problem for c in read_calls(text).calls if isinstance(c, Malformed)]


@pytest.mark.parametrize(
    "query",
    [
        "boats",
        "a {brace} and }} {{",
        'quotes " and \\',
        "</tool_call>",
        "<tool_call>{",
        "naïve 船 🛶",
        "",
    ],
)
@pytest.mark.parametrize("space", ["", "\n", "  \n\t"])
def test_hermes_calls_are_read_whatever_their_strings_hold(query, space):
    text = f"I look.{space}<tool_call>{space}"
    text += json.dumps({"name": "find", "arguments": {"query": query, "deep": {"a": [{}]}}})
    text += f"{space}</tool_call>{space}"
    expected = Call("find", {"query": query, "deep": {"a": [{}]}})
    assert read_calls(text) == Parsed((expected,), "I look.")
    assert read_calls(text * 2).calls == (expected, expected)


def test_text_without_calls_is_only_text():
    assert read_calls(" I am DONE. ") == Parsed((), "I am DONE.")
    assert read_calls("") == Parsed()
    assert read_calls("Their names and arguments {differ}").calls == ()


def test_calls_in_thinking_are_none():
    thought = f"<think>maybe {call(query='x')}</think>"
    assert read_calls(thought + call(query="y")).calls == (Call("find", {"query": "y"}),)
    assert read_calls(thought[:-8]).calls == ()
    opened = f"maybe {call(query='x')}</think>DONE"
    assert read_calls(opened, thinking=True) == Parsed((), "DONE")


def test_forms_that_models_use_instead_are_read():
    expected = (Call("find", {"query": "x"}),)
    unclosed = call(query="x").removesuffix("</tool_call>")
    for text in (
        unclosed,
        wrapped('{"name": "find", "parameters": {"query": "x"}}'),
        wrapped('{"name": "find", "arguments": "{\\"query\\": \\"x\\"}"}'),
        wrapped('{"type": "function", "function": {"name": "find", "arguments": {"query": "x"}}}'),
    ):
        assert read_calls(text).calls == expected
    assert read_calls(unclosed + unclosed).calls == expected * 2
    assert read_calls(wrapped('{"name": "list"}')).calls == (Call("list", {}),)


def test_the_function_form_is_read():
    body = (
        "<function=find>\n<parameter=query>\na > b\nc\n</parameter>\n<parameter=k>\n7\n</parameter>"
    )
    expected = Call("find", {"query": "a > b\nc", "k": "7"}, untyped=True)
    assert read_calls(wrapped(f"\n{body}\n</function>\n")).calls == (expected,)
    assert read_calls(wrapped("<function=list></function>")).calls[0].name == "list"
    for broken, said in (
        (body, "neither a <parameter=...> nor </function>"),
        ("<function=find", "does not name a tool"),
        ("<function=find><parameter=query>x</function>", "'</parameter>' is missing"),
        ("<function= ></function>", "does not name a tool"),
    ):
        assert said in problems(wrapped(broken))[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (wrapped('{"name": "find", "arguments": {"query": "x"}'), "Expecting ',' delimiter"),
        (wrapped('{"name": "find", "arguments": {"query": x}}'), "Expecting value"),
        (wrapped("{'name': 'find'}"), "enclosed in double quotes"),
        (wrapped('{"name": "find", "arguments": {"x": NaN}}'), "NaN is not a JSON value"),
        (wrapped('{"name": "find", "arguments": {"x": 1' + "0" * 5000 + "}}"), "JSON is broken"),
        (wrapped('{"a":' * 100_000), "nested too deeply"),
        (wrapped("find(query='x')"), "is not a JSON object"),
        (wrapped(""), "is not a JSON object"),
        ("<tool_call>", "is not a JSON object"),
        (wrapped('{"arguments": {}}'), 'needs "name"'),
        (wrapped('{"name": 5}'), 'needs "name"'),
        (wrapped('{"name": "find", "query": "x"}'), 'stand in "arguments"'),
        (wrapped('{"name": "find", "arguments": [1]}'), 'stand in "arguments"'),
        (wrapped('{"name": "find", "arguments": "query=x"}'), "must be a JSON object"),
        (call(query="x").replace("</tool_call>", "}</tool_call>"), "instead of </tool_call>"),
        ('{"name": "find", "arguments": {}}', "must stand between tags"),
        (call(query="x").removeprefix("<"), "a tag is broken"),
        ("</tool_call>", "a tag is broken"),
        ("<tool_call", "a tag is broken"),
    ],
)
def test_a_malformed_call_is_answered_with_what_is_wrong(text, said):
    assert [said in problem for problem in problems(text)].count(True) == 1


def test_a_broken_call_does_not_hide_the_next():
    parsed = read_calls(wrapped('{"name": ') + call(query="x") + "<tool_call>{" + call(query="y"))
    assert [type(c) for c in parsed.calls] == [Malformed, Call, Malformed, Call]


def test_more_calls_than_are_read_are_answered_as_one():
    parsed = read_calls(call(query="x") * 100)
    assert len(parsed.calls) == MAX_CALLS + 1
    assert isinstance(parsed.calls[-1], Malformed) and str(MAX_CALLS) in parsed.calls[-1].problem


def spoken(tokenizer, reply: str, tools=()) -> Parsed:
    policy = ScriptedPolicy(tokenizer, replies([reply]))
    chat = Chats({"memory": Model(policy, Renderer(tokenizer))}, (0,)).open("memory", tools=tools)
    said = asyncio.run(chat.say(user("go")))
    return parse_reply(chat, said)


def test_thinking_that_the_prompt_opened_is_left_out():
    def template(messages, tools, prompt):
        body = "".join(f"<|start|>{m['role']}\n{m['content']}<|end|>\n" for m in messages)
        return body + "<|start|>assistant\n<think>\n" * prompt

    reply = f"maybe {call(query='x')}</think>{call(query='y')}"
    assert len(spoken(ByteTokenizer(), reply).calls) == 2
    assert spoken(ByteTokenizer(template), reply).calls == (Call("find", {"query": "y"}),)


def test_tags_that_are_control_tokens_are_seen():
    pytest.importorskip("transformers")
    from recollect.models.tokenizer import HFTokenizer
    from tests.support.tiny import byte_tokenizer

    hf = byte_tokenizer()
    hf.add_special_tokens({"additional_special_tokens": ["<tool_call>", "</tool_call>"]})

    class Tags(HFTokenizer):
        def encode(self, text: str, control: bool = False) -> list[int]:
            return super().encode(text, control=True)

    tokenizer = Tags(hf, len(hf), [hf.eos_token_id])
    assert tokenizer.decode(tokenizer.encode("<tool_call>é")) == "é"
    said = "Hé. " + call(query="naïve 🛶") * 2
    assert spoken(tokenizer, said).calls == (Call("find", {"query": "naïve 🛶"}),) * 2


def test_a_form_that_the_tokenizer_declares_is_used():
    pytest.importorskip("transformers")
    from recollect.models.tokenizer import HFTokenizer
    from tests.support.tiny import byte_tokenizer

    hf = byte_tokenizer()
    hf.response_template = {
        "defaults": {"role": "assistant"},
        "start_anchor": "<|start|>assistant\n",
        "fields": {
            "tool_calls": {
                "open_pattern": r"\[call (?P<name>\w+)\]",
                "close": "[/call]",
                "repeats": True,
                "content": "json",
                "transform": {
                    "type": "function",
                    "function": {"name": "{name}", "arguments": "{content}"},
                },
            },
            "content": {"close": "<|end|>", "content": "text"},
        },
    }
    tokenizer = HFTokenizer(hf, len(hf), [hf.eos_token_id])
    said = 'So. [call find]{"query": "x"}[/call][call list]{}[/call]'
    if "tools" not in inspect.signature(hf.parse_response).parameters:
        with pytest.raises(UserError, match="transformers 5"):
            spoken(tokenizer, said)
        return
    parsed = spoken(tokenizer, said)
    assert parsed.calls == (Call("find", {"query": "x"}), Call("list", {}))
    broken = spoken(tokenizer, '[call find]{"query": [/call]').calls
    assert isinstance(broken[0], Malformed) and "cannot be read" in broken[0].problem
    hf.response_template = None
    assert spoken(tokenizer, call(query="x")).calls == (Call("find", {"query": "x"}),)

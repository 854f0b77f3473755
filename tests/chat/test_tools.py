"""Tools: schemas from types, and an answer to whatever is called with whatever."""

from __future__ import annotations

import asyncio
import json
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.chat.tools import (
    Answer,
    Call,
    Limits,
    Malformed,
    ToolBox,
    ToolFailed,
    shorten,
    tool,
)
from recollect.errors import BoundaryError, UserError, boundary


@tool
async def find(
    query: str,
    top_k: int = 5,
    mode: Literal["words", "meaning"] = "words",
    ids: list[str] | None = None,
    share: float = 0.5,
    deep: bool = False,
) -> str:
    """Find memories.

    The best come first.

    Args:
        query: What to look for,
            in a few words.
        top_k: How many.

    Returns:
        Lines.
    """
    return f"{query} {top_k} {mode} {ids} {share} {deep}"


@tool
def count(counts: dict[str, int]) -> dict[str, int]:
    """Count."""
    return counts


def say(*calls: Call | Malformed, tools=(find, count), **limits) -> list[Answer]:
    return asyncio.run(ToolBox(tuple(tools), Limits(**limits)).answer(calls))


def text(name: str, arguments: dict, untyped: bool = False) -> str:
    return say(Call(name, arguments, untyped))[0].text


def test_a_schema_says_types_choices_defaults_and_descriptions():
    function = find.schema["function"]
    assert find.schema["type"] == "function" and function["name"] == "find"
    assert function["description"] == "Find memories. The best come first."
    assert function["parameters"] == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for, in a few words."},
            "top_k": {"type": "integer", "description": "How many."},
            "mode": {"type": "string", "enum": ["words", "meaning"]},
            "ids": {"type": "array", "items": {"type": "string"}},
            "share": {"type": "number"},
            "deep": {"type": "boolean"},
        },
        "required": ["query"],
    }
    counts = count.schema["function"]["parameters"]["properties"]["counts"]
    assert counts == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert json.loads(json.dumps(find.schema)) == find.schema


def test_sync_and_async_tools_are_called_with_what_was_sent():
    given = {"query": "boats", "top_k": 2.0, "ids": ["a"], "share": 1}
    assert text("find", given) == "boats 2 words ['a'] 1.0 False"
    assert text("find", {"query": "x", "ids": None}) == "x 5 words None 0.5 False"
    assert json.loads(text("count", {"counts": {"a": 1}})) == {"a": 1}


def test_arguments_that_were_written_as_text_are_read_as_their_types():
    sent = {"query": "7", "top_k": "7", "deep": "True", "ids": '["a"]', "mode": " meaning "}
    assert text("find", sent, untyped=True) == "7 7 meaning ['a'] 0.5 True"
    assert "top_k must be a whole number, not 'many'" in text("find", {"top_k": "many"}, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "query is missing"),
        ({"query": 5}, "query must be a text, not 5"),
        ({"query": "x", "top_k": "5"}, "top_k must be a whole number, not '5'"),
        ({"query": "x", "top_k": True}, "top_k must be a whole number, not true"),
        ({"query": "x", "top_k": 2.5}, "top_k must be a whole number, not 2.5"),
        ({"query": "x", "deep": 1}, "deep must be true or false, not 1"),
        ({"query": "x", "mode": "smell"}, "mode must be one of 'words', 'meaning', not 'smell'"),
        ({"query": "x", "ids": "a"}, "ids must be a list, not 'a'"),
        ({"query": "x", "ids": ["a", 3]}, "ids must be a list, each a text, not 3"),
        ({"query": "x", "share": float("inf")}, "share must be a number"),
        ({"query": "x", "share": 10**400}, "share must be a number"),
        ({"query": "x", "colour": 1}, "there is no argument 'colour', only query, top_k"),
        ({"top_k": "5", "colour": 1}, "query is missing"),
    ],
)
def test_wrong_arguments_are_answered_with_what_is_wrong(arguments, said):
    answer = say(Call("find", arguments))[0]
    assert answer.outcome == "failed" and answer.text.startswith("Error: find: ")
    assert said in answer.text


def test_all_that_is_wrong_is_said_at_once():
    said = text("find", {"top_k": "five", "colour": 1})
    assert all(part in said for part in ("top_k must", "no argument 'colour'", "query is missing"))


def test_unknown_tools_malformed_calls_and_exceptions_are_answered():
    @tool
    def broken(kind: str) -> str:
        """Break."""
        raise {"failed": ToolFailed("No luck."), "key": KeyError("k")}[kind]

    answers = say(
        Call("fnd", {}),
        Malformed("the JSON is broken"),
        Call("broken", {"kind": "failed"}),
        Call("broken", {"kind": "key"}),
        tools=(find, broken),
        max_parallel_calls=5,
    )
    assert [answer.text for answer in answers] == [
        "Error: there is no tool 'fnd', only find, broken",
        "Error: the JSON is broken",
        "No luck.",
        "Error: broken: KeyError: 'k'",
    ]
    assert [answer.outcome for answer in answers] == ["failed", "malformed", "failed", "failed"]
    assert [answer.tool for answer in answers] == ["", "", "broken", "broken"]


@pytest.mark.parametrize("error", [UserError("wrong"), BoundaryError("policy", OSError("gone"))])
def test_what_is_not_the_models_doing_is_not_answered(error):
    @tool
    def broken() -> str:
        """Break."""
        with boundary("tool"):
            raise error

    with pytest.raises(type(error)):
        say(Call("broken"), tools=(broken,))


def test_calls_beyond_the_limit_are_answered_but_not_carried_out():
    done: list[int] = []

    @tool
    def do(n: int) -> str:
        """Do."""
        done.append(n)
        return "done"

    calls = [Call("do", {"n": n}) for n in range(4)]
    assert [a.outcome for a in say(*calls, tools=(do,))] == ["ok"] + ["refused"] * 3
    answers = say(*calls, tools=(do,), max_parallel_calls=3)
    assert done == [0, 0, 1, 2] and answers[3].text.endswith("at most 3 calls per turn")


def test_long_responses_are_cut_where_asked():
    long = "a" * 1000  # the tool answers with more after it, ending in "False"
    for truncation, first, last in (("head", "a", "\n"), ("tail", "\n", "e"), ("middle", "a", "e")):
        answer = say(
            Call("find", {"query": long}), max_tool_response_length=100, truncation=truncation
        )[0]
        assert len(answer.text) <= 100 and "characters left out" in answer.text
        assert answer.text[0] == first and answer.text[-1] == last


@given(st.text(max_size=200), st.integers(1, 220), st.sampled_from(["head", "tail", "middle"]))
def test_a_cut_text_never_exceeds_its_limit(text, limit, truncation):
    cut = shorten(text, limit, truncation)
    assert len(cut) <= limit and (cut == text) == (len(text) <= limit or cut == text)


def test_every_answer_can_be_encoded():
    answer = text("find", {"query": "half a pair: \ud83d", "\udc00": 1})
    answer.encode()


def test_a_narrowed_tool_shows_and_takes_less():
    narrow = find.narrowed(["ids"], mode=Literal["words"])
    properties = narrow.schema["function"]["parameters"]["properties"]
    assert "ids" not in properties and properties["mode"]["enum"] == ["words"]
    with pytest.raises(ToolFailed, match="no argument 'ids'"):
        narrow.checked({"query": "x", "ids": []})


def test_a_function_that_cannot_be_a_tool_is_refused_when_it_is_made():
    def untyped(x):
        """Do."""

    def odd(x: set[int]) -> None:
        """Do."""

    def misdescribed(x: int) -> None:
        """Do.

        Args:
            y: Not there.
        """

    for function in (untyped, odd, misdescribed):
        with pytest.raises(TypeError):
            tool(function)
    with pytest.raises(ValueError, match="one name"):
        ToolBox((find, find))


@pytest.mark.parametrize("name", ["max_assistant_turns", "max_parallel_calls", "max_turn_tokens"])
def test_limits_that_allow_nothing_are_refused(name):
    with pytest.raises(UserError, match=name):
        Limits(**{name: 0})
    with pytest.raises(UserError, match="truncation"):
        Limits(truncation="left")

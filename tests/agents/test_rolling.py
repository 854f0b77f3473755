"""Rolling state: one state per chunk, carried token for token, everything else forgotten."""

from __future__ import annotations

import pytest

from recollect.agents.rolling import FIRST_STATE, RollingAgent
from recollect.errors import UserError
from recollect.types import Question, Task
from tests.support.play import play

OWN = RollingAgent(chunk_size=None)


def story(*chunks: str, position: int | None = None) -> Task:
    asked = (Question("Who was it?", ("x",)), Question("Where?", ("y",), position=position))
    return Task("t", chunks, asked)


def states(*texts: str):
    left = iter(texts)
    return lambda _prompt: next(left)


def test_the_state_is_all_that_is_carried_on() -> None:
    write = states("<state>\nfirst\n</state>", "<state>\nsecond\n</state>")
    played = play(OWN, story("alpha", "beta"), write=write, answer=lambda _: "ok")
    first, second = played.prompts["memory"]
    assert FIRST_STATE in first and "alpha" in first
    assert "<state>\nfirst\n</state>" in second and "alpha" not in second and "beta" in second
    assert "Who was it?\nWhere?" in first and "Who was it?\nWhere?" in second
    for prompt in played.prompts["answer"]:
        assert "<state>\nsecond\n</state>" in prompt
        assert "first" not in prompt and "beta" not in prompt
    assert [c.role for c in played.contexts] == ["memory", "memory", "answer", "answer"]
    assert played.answers == ["ok", "ok"]
    assert [op.label for op in played.memory.ops] == ["chunk 1", "chunk 2"]


@pytest.mark.parametrize(
    ("reply", "kept", "exact", "untagged"),
    [
        ("<state>known</state>", "<state>known</state>", True, 0),
        ("Let me see. <state>known</state> Done.", "<state>\nknown\n</state>", False, 0),
        ("<state>old</state><state>known</state>", "<state>\nknown\n</state>", False, 0),
        ("<state>known", "<state>\nknown\n</state>", False, 0),  # cut off by the limit
        ("known", "<state>\nknown\n</state>", False, 1),
        ("", "<state>\n\n</state>", False, 1),
    ],
)
def test_what_counts_as_the_state(reply: str, kept: str, exact: bool, untagged: int) -> None:
    played = play(OWN, story("alpha"), write=lambda _: reply)
    assert played.memory.text == kept
    assert bool(played.memory.token_ids) == exact
    assert played.contexts[0].counts == {"untagged": untagged}
    assert kept in played.prompts["answer"][0]


def test_questions_are_asked_at_their_position() -> None:
    write = states("<state>first</state>", "<state>second</state>")
    played = play(OWN, story("alpha", "beta", position=0), write=write)
    assert [c.label for c in played.contexts] == ["chunk 1", "question 2", "chunk 2", "question 1"]
    early, late = played.prompts["answer"]
    assert "first" in early and "second" in late


def test_windows_and_limits() -> None:
    agent = RollingAgent(chunk_size=10, max_state_tokens=8, max_answer_tokens=3)
    played = play(agent, story("x" * 25), write=lambda _: "s" * 99, answer=lambda _: "a" * 99)
    assert len(played.prompts["memory"]) == 3
    assert played.answers == ["aaa", "aaa"]
    assert played.memory.text == "<state>\nssssssss\n</state>"
    agent.check_window(10 + 16 + 256)
    with pytest.raises(UserError, match="do not fit the model's window of 281"):
        agent.check_window(281)
    with pytest.raises(UserError, match="max_state_tokens is 0"):
        RollingAgent(max_state_tokens=0)

"""What the files of an evaluation must look like to be used: only what something depends on.

Knows nothing of where they lie.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from recollect.runs.shape import Count, FailureShape, Integer, OpShape, QuestionShape, Shape, wrong

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class _Context(Shape):
    role: str
    question: Integer | None = None
    turns: list[tuple[Count, Count, str, str]]
    label: str = ""
    chunks: tuple[Count, Count] | None = None
    counts: dict[str, Number] = Field(default_factory=dict)


class _Op(OpShape):
    said: tuple[Count, Count] | None = None
    """The context and the turn whose text it is."""


class _Episode(Shape):
    id: str
    task: str
    agent: str
    seed: Integer
    index: Count
    task_id: str
    hash: str
    chars: Count
    tokens: Count
    chunks: Count
    cluster: str = ""
    meta: dict[str, Any]
    questions: Annotated[list[QuestionShape], Field(min_length=1)]
    answers: list[str]
    failure: FailureShape | None
    seconds: Number
    told: dict[str, tuple[Count, Count]] = Field(default_factory=dict)
    memory: dict[str, Number]
    ops: list[_Op] = Field(default_factory=list)
    contexts: list[_Context]
    run: Number
    at: Number


class _Set(Shape):
    family: str
    primary: str


class _Config(Shape):
    identity: dict[str, Any]
    commands: list[str]
    settings: dict[str, Any]
    model: dict[str, Any]
    agents: dict[str, str]
    sets: dict[str, _Set]
    versions: dict[str, str]


def wrong_episode(record: Any) -> str:
    """Say what is wrong with a line of episodes.jsonl; nothing if it can be scored."""
    found = wrong(_Episode, record)
    said = [op["said"] for op in record.get("ops", ()) if op.get("said")] if not found else []
    if any(at >= len(record["contexts"]) for at, _turn in said) or any(
        turn >= len(record["contexts"][at]["turns"]) for at, turn in said
    ):
        return "an edit names a turn that is not there"
    if not found and record["failure"] is None:
        answers, asked = len(record["answers"]), len(record["questions"])
        return "" if answers == asked else f"it has {answers} answers to {asked} questions"
    return found


def wrong_config(config: Any) -> str:
    """Say what is wrong with an evaluation's config.json; nothing if it can be used."""
    return wrong(_Config, config)

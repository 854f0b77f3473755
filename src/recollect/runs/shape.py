"""What a stored episode must look like to be used: only what something depends on.

Knows nothing of where it lies. An evaluation's episodes share the parts.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Integer = Annotated[int, Field(strict=True, gt=-(1 << 62), lt=1 << 62)]
Count = Annotated[int, Field(strict=True, ge=0, lt=1 << 62)]
Number = Annotated[float, Field(strict=True)]


class Shape(BaseModel):
    """Some names of an object and the types behind them; others may be there too."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class QuestionShape(Shape):
    """A question."""

    text: str
    answers: list[str]
    category: str = ""
    evidence: list[Integer] = []
    position: Integer | None = None
    every: bool = False


class FailureShape(Shape):
    """Why an episode failed."""

    boundary: str
    kind: str
    message: str


class OpShape(Shape):
    """An edit of the memory."""

    kind: str
    data: dict[str, Any] = {}
    label: str = ""


class _Task(Shape):
    id: str
    source: str
    questions: list[QuestionShape]
    meta: dict[str, Any]
    cluster: str = ""


class _Turn(Shape):
    start: Count
    end: Count
    stop_reason: str
    prompt: str = ""
    text: str = ""
    logprobs: list[Number | None]


class _Context(Shape):
    role: str
    ids: list[Integer]
    turns: list[_Turn]
    label: str = ""
    question: Integer | None = None
    chunks: tuple[Count, Count] | None = None
    counts: dict[str, Number] = {}
    reward: Number | None = None
    steps: dict[str, Number | None] = {}
    learned: dict[str, list[Number | None]] = {}


class _Head(Shape):
    task: _Task
    rollout: Integer
    reward: Number | None
    scores: dict[str, Number | None]
    answers: list[str]
    answer_scores: list[Number] = []
    failure: FailureShape | None
    forked: Integer = 0
    namespace: str = ""
    seconds: Number


class _Episode(_Head):
    ops: list[OpShape]
    contexts: list[_Context]


def wrong_head(record: Any) -> str:
    """Say what is wrong with what a run stores of an episode, its edits and contexts aside."""
    return wrong(_Head, record)


def wrong_episode(record: Any) -> str:
    """Say what is wrong with an episode that a run has stored; nothing if it can be used."""
    return wrong(_Episode, record)


def wrong(shape: type[Shape], value: Any) -> str:
    """Say where a value has another shape; nothing if it has this one."""
    try:
        shape.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where}: {first['msg']}" if where else str(first["msg"])
    return ""

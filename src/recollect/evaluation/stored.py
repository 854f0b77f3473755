"""What the files of an evaluation must look like to be used: only what something depends on.

Knows nothing of where they lie.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Count = Annotated[int, Field(ge=0, lt=1 << 62)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class _Stored(BaseModel):
    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class _Question(_Stored):
    text: str
    answers: list[str]
    category: str = ""
    evidence: list[int] = []
    every: bool = False


class _Failure(_Stored):
    boundary: str
    kind: str
    message: str


class _Context(_Stored):
    role: str
    question: int | None = None
    turns: list[tuple[Count, Count, str, str]]


class _Episode(_Stored):
    id: str
    task: str
    agent: str
    seed: int
    index: Count
    task_id: str
    hash: str
    chars: Count
    tokens: Count
    chunks: Count
    meta: dict[str, Any]
    questions: Annotated[list[_Question], Field(min_length=1)]
    answers: list[str]
    failure: _Failure | None
    seconds: Number
    told: dict[str, tuple[Count, Count]] = {}
    memory: dict[str, Number]
    contexts: list[_Context]
    run: Number
    at: Number


class _Set(_Stored):
    family: str
    primary: str


class _Config(_Stored):
    identity: dict[str, Any]
    commands: list[str]
    settings: dict[str, Any]
    model: dict[str, Any]
    agents: dict[str, str]
    sets: dict[str, _Set]
    versions: dict[str, str]


def wrong_episode(record: Any) -> str:
    """Say what is wrong with a line of episodes.jsonl; nothing if it can be scored."""
    wrong = _wrong(_Episode, record)
    if not wrong and record["failure"] is None:
        answers, asked = len(record["answers"]), len(record["questions"])
        return "" if answers == asked else f"it has {answers} answers to {asked} questions"
    return wrong


def wrong_config(config: Any) -> str:
    """Say what is wrong with an evaluation's config.json; nothing if it can be used."""
    return _wrong(_Config, config)


def _wrong(shape: type[_Stored], value: Any) -> str:
    try:
        shape.model_validate(value, strict=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where}: {first['msg']}" if where else str(first["msg"])
    return ""

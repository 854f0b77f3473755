"""A stored episode as the viewer reads it, written by a training run or an evaluation.

Texts are cleaned once, here, so that no later step can show what would act on a screen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.foreign import shown
from recollect.types import Question

LONGEST = 200_000
"""Characters of one text that are shown and searched; of longer ones the middle is left out."""


@dataclass(frozen=True)
class Said:
    """One model call: what the model read since its last reply, and what it replied."""

    prompt: str | None
    """None where the prompt is not stored."""
    text: str
    stop: str = "stop"
    read: int = 0
    """Tokens of the whole prompt ..."""
    written: int = 0
    """... and of the reply."""


@dataclass(frozen=True)
class Part:
    """One context of an episode."""

    role: str
    turns: tuple[Said, ...]
    label: str = ""
    question: int | None = None
    trainable: bool = True
    chunks: tuple[int, int] | None = None
    """The first and the last chunk of the task that it showed something of, where noted."""
    counts: Mapping[str, int] = field(default_factory=dict)
    reward: float | None = None
    steps: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Op:
    """One edit of the memory."""

    kind: str
    data: Mapping[str, Any]
    label: str = ""


@dataclass(frozen=True)
class Stored:
    """One episode."""

    task: str
    questions: tuple[Question, ...]
    parts: tuple[Part, ...]
    ops: tuple[Op, ...] = ()
    answers: tuple[str, ...] = ()
    """One per question; none where the episode failed."""
    scores: tuple[float | None, ...] = ()
    """One per question: how well it was answered."""
    reward: float | None = None
    measures: Mapping[str, float] = field(default_factory=dict)
    """Named measurements beside the reward."""
    failure: Mapping[str, str] | None = None
    rollout: int = 0
    forked: int = 0
    source: str = ""
    chunks: Sequence[str] | None = None
    """The task's text, where it is known."""
    boxed: bool = False
    """Whether an answer counts only inside of a box."""
    speaks: bool = True
    """Whether the agent answers itself; a curator leaves that to a reader."""


def clean(text: Any) -> str:
    """Return text that is safe to show, its middle left out where it is too long."""
    text = text if isinstance(text, str) else str(text)
    if len(text) > LONGEST:
        half = LONGEST // 2
        text = f"{text[:half]}\n[{len(text) - 2 * half:,} characters left out]\n{text[-half:]}"
    return shown(text)


def clean_values(value: Any) -> Any:
    """Clean every text in plain data."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(name): clean_values(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_values(item) for item in value]
    return value


def question_of(record: Mapping[str, Any]) -> Question:
    """Return a stored question."""
    return Question(
        clean(record["text"]),
        tuple(map(clean, record["answers"])),
        clean(record.get("category", "")),
        tuple(record.get("evidence", ())),
        record.get("position"),
        bool(record.get("every", False)),
    )


def of_run(record: Mapping[str, Any], boxed: bool = False) -> Stored:
    """Read an episode of a training run."""
    task = record["task"]
    questions = tuple(map(question_of, task["questions"]))
    parts = tuple(map(_part, record["contexts"]))
    answers = tuple(map(clean, record["answers"]))
    return Stored(
        clean(task["id"]),
        questions,
        parts,
        tuple(Op(clean(op["kind"]), _data(op["data"]), clean(op["label"])) for op in record["ops"]),
        answers,
        scores_of(record),
        record["reward"],
        {clean(name): value for name, value in record["scores"].items()},
        _failure(record["failure"]),
        record["rollout"],
        record.get("forked", 0),
        clean(task["source"]),
        boxed=boxed,
        speaks=any(answers) or any(part.role == "answer" for part in parts),
    )


def scores_of(record: Mapping[str, Any]) -> tuple[float | None, ...]:
    """Return how well every question of a run's episode was answered; None if nothing scored it."""
    asked = len(record["task"]["questions"])
    if record["failure"]:
        return (0.0,) * asked
    if len(record.get("answer_scores") or ()) == asked:
        return tuple(record["answer_scores"])
    score = record["scores"].get("answer", record["reward"])
    return (None if score is None else float(score),) * asked


def of_evaluation(
    record: Mapping[str, Any], scores: Sequence[float], chunks: Sequence[str] | None = None
) -> Stored:
    """Read an episode of an evaluation; `chunks` is its task's text, made again."""
    parts = tuple(map(_evaluated, record["contexts"]))
    return Stored(
        clean(record["task_id"]),
        tuple(map(question_of, record["questions"])),
        parts,
        _ops(record, parts),
        tuple(map(clean, record["answers"])),
        tuple(scores),
        None,
        {f"memory {name}": value for name, value in record["memory"].items()},
        _failure(record["failure"]),
        source=clean(record["task"]),
        chunks=None if chunks is None else [clean(chunk) for chunk in chunks],
    )


def _ops(record: Mapping[str, Any], parts: Sequence[Part]) -> tuple[Op, ...]:
    """Return the edits; an evaluation from before they were stored has the replies alone."""
    if "ops" not in record:
        return tuple(
            Op("replace", {"text": part.turns[-1].text}, part.label)
            for part in parts
            if part.role == "memory" and part.turns
        )
    found = []
    for op in record["ops"]:
        data = dict(op.get("data", {}))
        if "said" in op:  # the text is that of a reply, and is stored there
            context, turn = op["said"]
            data["text"] = parts[context].turns[turn].text
        found.append(Op(clean(op["kind"]), clean_values(data), clean(op.get("label", ""))))
    return tuple(found)


def _part(record: Mapping[str, Any]) -> Part:
    turns = tuple(
        Said(
            clean(turn["prompt"]) if "prompt" in turn else None,
            clean(turn.get("text", "")),
            turn["stop_reason"],
            turn["start"],
            turn["end"] - turn["start"],
        )
        for turn in record["turns"]
    )
    chunks = record.get("chunks")
    return Part(
        clean(record["role"]),
        turns,
        clean(record.get("label", "")),
        record.get("question"),
        bool(record.get("trainable", True)),
        tuple(chunks) if chunks else None,
        record.get("counts") or {},
        record.get("reward"),
        record.get("steps") or {},
    )


def _evaluated(record: Mapping[str, Any]) -> Part:
    turns = tuple(
        Said(None, clean(text), stop, start, written)
        for start, written, stop, text in record["turns"]
    )
    chunks = record.get("chunks")
    return Part(
        clean(record["role"]),
        turns,
        clean(record.get("label", "")),
        record.get("question"),
        False,
        tuple(chunks) if chunks else None,
        record.get("counts") or {},
    )


def _data(data: Mapping[str, Any]) -> dict[str, Any]:
    return {clean(k): clean_values(v) for k, v in data.items() if k != "token_ids"}


def _failure(failure: Mapping[str, Any] | None) -> dict[str, str] | None:
    return {name: clean(value) for name, value in failure.items()} if failure else None

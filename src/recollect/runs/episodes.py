"""Episodes as JSON lines: every token, operation, answer and reward, readable back.

A task's chunks are not stored: the contexts hold what was read of them.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recollect.errors import UserError
from recollect.files import loads, plain
from recollect.foreign import redact
from recollect.types import Context, Episode, Failure, MemoryOp, Question, Task, Turn

_MISSHAPEN = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError)

Decode = Callable[[str, Sequence[int]], str]
"""Turn tokens of a role's model into text."""


def write_episodes(path: Path, episodes: Iterable[Episode], decode: Decode | None = None) -> None:
    """Write episodes as gzipped JSON lines; `decode` adds the text of prompts and turns."""
    with gzip.open(path, "wt", compresslevel=3, encoding="utf-8") as file:
        for episode in episodes:
            record = json.dumps(episode_record(episode, decode), default=plain)
            file.write(redact(record) + "\n")


def read_episodes(path: Path) -> Iterator[Episode]:
    """Yield the episodes of a file that `write_episodes` made."""
    number = 0
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is not a file")
        with gzip.open(path, "rb") as file:
            for number, line in enumerate(file, 1):  # noqa: B007 - the error below names it
                yield episode_of(loads(line))
    except (OSError, EOFError, zlib.error, *_MISSHAPEN) as error:
        raise UserError(
            f"{path} is not a whole file of episodes (line {number or 1}: {error})",
            "name a file such as RUN/episodes/train-000010.jsonl.gz",
        ) from error


def episode_record(episode: Episode, decode: Decode | None = None) -> dict[str, Any]:
    """Return an episode as plain data."""
    task = episode.task
    return {
        "task": {
            "id": task.id,
            "source": task.source,
            "questions": [asdict(question) for question in task.questions],
            "meta": task.meta,
            "cluster": task.cluster,
        },
        "rollout": episode.rollout,
        "reward": episode.reward,
        "scores": episode.scores,
        "answers": episode.answers,
        "answer_scores": episode.answer_scores,
        "forked": episode.forked,
        "namespace": episode.namespace,
        "failure": asdict(episode.failure) if episode.failure else None,
        "seconds": episode.seconds,
        "ops": [asdict(op) for op in episode.ops],
        "contexts": [_context_record(context, decode) for context in episode.contexts],
    }


def memory_states(episode: Episode, shown: Callable[[str], str] = str) -> dict[str, str]:
    """Map each label to what the memory became there, or to what was done to it."""
    states: dict[str, list[str]] = {}
    for op in episode.ops:
        label = op.label or "memory"
        if op.kind == "replace":
            states[label] = [str(op.data.get("text", ""))]
        else:
            values = (shown(str(value)) for name, value in op.data.items() if name != "token_ids")
            states.setdefault(label, []).append(f"{op.kind} {', '.join(values)}".rstrip())
    return {label: "; ".join(texts) for label, texts in states.items()}


def _context_record(context: Context, decode: Decode | None) -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    said = 0
    for turn in context.turns:
        # Its tokens are the context's own, from start to end.
        record = {"start": turn.start, "end": turn.end, "stop_reason": turn.stop_reason}
        texts = {}
        if decode is not None:
            prompt = decode(context.role, context.ids[said : turn.start])
            texts = {"prompt": prompt, "text": decode(context.role, turn.token_ids)}
        turns.append({**record, **texts, "logprobs": turn.logprobs})
        said = turn.end
    return {**vars(context), "turns": turns}


def episode_of(record: dict[str, Any]) -> Episode:
    """Return the episode of a record."""
    from recollect.runs.shape import wrong_episode  # brings pydantic, which is slow to import

    if found := wrong_episode(record):
        raise ValueError(found)
    task = record["task"]
    questions = tuple(
        Question(**{**q, "answers": tuple(q["answers"]), "evidence": tuple(q["evidence"])})
        for q in task["questions"]
    )
    made = Task(task["id"], (), questions, task["source"], task["meta"])
    return Episode(
        task=made.without_text(task.get("cluster", "")),
        rollout=record["rollout"],
        contexts=[_context(context) for context in record["contexts"]],
        ops=[MemoryOp(**op) for op in record["ops"]],
        answers=record["answers"],
        reward=record["reward"],
        scores=record["scores"],
        answer_scores=record.get("answer_scores", []),
        failure=Failure(**record["failure"]) if record["failure"] else None,
        seconds=record["seconds"],
        forked=record.get("forked", 0),
        namespace=record.get("namespace", ""),
    )


def _context(record: dict[str, Any]) -> Context:
    ids = tuple(record["ids"])
    turns = [
        Turn(t["start"], ids[t["start"] : t["end"]], tuple(t["logprobs"]), t["stop_reason"])
        for t in record["turns"]
    ]
    chunks = record.get("chunks")
    places = tuple(chunks) if chunks else None
    return Context(**{**record, "ids": ids, "turns": turns, "chunks": places})

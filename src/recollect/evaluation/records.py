"""One line of episodes.jsonl: all that an episode said and spent, and all that scoring it needs.

The text of a task is not stored, only its hash: the family makes it again. Neither are prompts,
which follow from the task and the replies. An edit of the memory that is a reply names that reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from recollect.chat.rendering import Tokenizer
from recollect.evaluation.calls import Calls
from recollect.evaluation.jobs import Job
from recollect.evaluation.texts import TaskText
from recollect.types import Context, Episode, MemoryOp, Question, Task

Record = dict[str, Any]

_SCALARS = (str, int, float, bool)
_SHORT = 200
"""Characters of a task's remark about itself above which it is left out."""


def episode_record(
    job: Job, text: TaskText, episode: Episode, calls: Calls, tokenizers: dict[str, Tokenizer]
) -> Record:
    """Return an episode as plain data."""
    task = episode.task
    contexts = [_context(c, tokenizers[c.role]) for c in episode.contexts]
    return {
        "id": job.id,
        "task": job.task,
        "agent": job.agent,
        "seed": job.seed,
        "index": job.index,
        "task_id": task.id,
        "hash": text.hash,
        "chars": text.chars,
        "tokens": text.tokens,
        "chunks": len(task.chunks),
        "cluster": task.cluster,
        "meta": {k: v for k, v in task.meta.items() if _is_short(v)},
        "questions": _questions(task),
        "answers": episode.answers,
        "failure": asdict(episode.failure) if episode.failure else None,
        "seconds": round(episode.seconds + calls.seconds, 3),
        "replayed": calls.replayed,
        **({"told": calls.counted} if calls.counted else {}),
        "memory": {name: round(size) for name, size in episode.scores.items()},
        "ops": _ops(episode.ops, contexts),
        "contexts": contexts,
    }


def questions(record: Record) -> list[Question]:
    """Return the questions of a stored episode."""
    return [
        Question(
            q["text"],
            tuple(q["answers"]),
            q.get("category", ""),
            tuple(q.get("evidence", ())),
            every=q.get("every", False),
        )
        for q in record["questions"]
    ]


def _questions(task: Task) -> list[Record]:
    """Keep the questions; what a family says about each (a rubric, say) is in the task's meta."""
    about = task.meta.get("questions")
    if not isinstance(about, list) or len(about) != len(task.questions):
        about = [None] * len(task.questions)
    return [_question(q, said) for q, said in zip(task.questions, about, strict=True)]


def _question(question: Question, about: Any) -> Record:
    kept = {
        "text": question.text,
        "answers": question.answers,
        "category": question.category,
        "evidence": question.evidence,
        "every": question.every,
        "about": about,
    }
    return {name: value for name, value in kept.items() if value or name == "answers"}


def _context(context: Context, tokenizer: Tokenizer) -> Record:
    """Keep what was said, and how much was read and written for it."""
    turns = [
        (turn.start, len(turn.token_ids), turn.stop_reason, tokenizer.decode(turn.token_ids))
        for turn in context.turns
    ]
    kept = {
        "role": context.role,
        "label": context.label,
        "question": context.question,
        "counts": context.counts,
        "chunks": context.chunks,
    }
    # Where a server refused the first call there are no turns, and that is told too.
    return {**{name: value for name, value in kept.items() if value or value == 0}, "turns": turns}


def _ops(ops: Sequence[MemoryOp], contexts: Sequence[Record]) -> list[Record]:
    """Keep the edits of the memory; a text that is a reply is stored once, with the reply."""
    said = {
        turn[3]: (c, t)
        for c, context in enumerate(contexts)
        for t, turn in enumerate(context["turns"])
    }
    kept: list[Record] = []
    for op in ops:
        data = {name: value for name, value in op.data.items() if name != "token_ids"}
        record: Record = {"kind": op.kind, "label": op.label}
        if data.get("text") in said:
            record["said"] = said[data.pop("text")]
        kept.append({**record, **({"data": data} if data else {})})
    return kept


def _is_short(value: Any) -> bool:
    return isinstance(value, _SCALARS) and len(str(value)) <= _SHORT

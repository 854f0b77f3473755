"""Ledgers as files in the published forms: `recollect data ledger`, and back into tasks.

A JSON file holds what is evaluated, a list of {task_id, chunks, questions: [{qid, query, answer,
position, category}]}; a Parquet file holds rows for training, the questions of one in a prompt. The
same options give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from recollect.bounds import FROM_1, check_bounds
from recollect.errors import UserError
from recollect.files import loads, read_file
from recollect.foreign import readable_json, storable_values
from recollect.memory.parquet import read_table
from recollect.tasks.base import Split
from recollect.tasks.files.manifest import building
from recollect.tasks.made.ledger import Ledger
from recollect.types import Question, Task

SESSIONS = (2, 5, 10, 20, 30, 40, 50)
"""Sessions of a ledger in the published sets."""
SOURCE, AGENT = "synth", "tool_mem_agent"
_NOTES = ("add", "update", "delete", "key_retrieve", "list")
_SEARCHES = ("bm25_retrieve", "embedding_retrieve")


@dataclass(frozen=True)
class LedgerOptions:
    """Write Ledger-QA sets: for each number of sessions one JSON and one Parquet file."""

    output: Path
    """The folder to write to."""
    sessions: tuple[int, ...] = SESSIONS
    """Numbers of sessions; one set is written for each."""
    questions: int = 100
    """Questions of each set, at least one per ledger."""
    per_ledger: int = 36
    """Questions about one ledger, at most: five of seven kinds and the total."""
    batch_size: int = 40
    """Questions of one Parquet row."""
    positions: Literal["end", "any"] = "end"
    split: Split = "test"
    seed: int = 0

    def __post_init__(self) -> None:
        check_bounds("", self, questions=FROM_1, per_ledger=FROM_1, batch_size=FROM_1)
        if not self.sessions:
            raise UserError("there is no number of sessions", "set --sessions, such as 2 5 10")


@dataclass(frozen=True)
class LedgerReport:
    """What was written."""

    sets: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Ledgers and questions, by the name of the set."""


def build_ledger(options: LedgerOptions) -> LedgerReport:
    """Write the sets."""
    families = {n: _family(options, n) for n in options.sessions}  # refuses before it writes
    report = LedgerReport()
    # The splits may be written at the same time.
    with building(options.output, options.split) as folder:
        for n, family in families.items():
            tasks = list(_tasks(options, family))
            name = f"ss{n}_{options.split}"
            write_eval(folder / f"{name}.json", tasks)
            write_rows(folder / f"{name}.parquet", tasks, options.batch_size)
            report.sets[name] = (len(tasks), sum(len(task.questions) for task in tasks))
    return report


def _family(options: LedgerOptions, sessions: int) -> Ledger:
    return Ledger(sessions, options.per_ledger, options.positions, fewer=True)


def _tasks(options: LedgerOptions, family: Ledger) -> Iterator[Task]:
    left, index = options.questions, 0
    while left:
        task = family.task(index, options.seed, options.split)
        questions = task.questions[:left]
        yield Task(task.id, task.chunks, questions, task.source)
        left, index = left - len(questions), index + 1


# For evaluation


def write_eval(path: Path, tasks: Sequence[Task]) -> None:
    """Write tasks as the published evaluation reads them."""
    records = [
        {
            "task_id": task.id,
            "chunks": list(task.chunks),
            "questions": [
                {
                    "qid": _qid(task, i),
                    "query": question.text,
                    "answer": question.answers[0],
                    "position": _position(task, question),
                    "category": question.category,
                    "evidence": list(question.evidence),
                }
                for i, question in enumerate(task.questions)
            ],
        }
        for task in tasks
    ]
    path.write_text(readable_json(records, indent=1) + "\n", encoding="utf-8")


def read_eval(path: Path) -> list[Task]:
    """Read tasks from a file for the published evaluation."""
    try:
        return [_evaluated(record) for record in loads(read_file(path))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} holds no tasks: {type(error).__name__}: {error}",
            "name a JSON list of {task_id, chunks, questions}, as `recollect data ledger` writes",
        ) from None


def _evaluated(record: Mapping[str, Any]) -> Task:
    chunks = tuple(record["chunks"])
    questions = tuple(
        Question(
            q["query"],
            _answers(q["answer"]),
            q.get("category") or "",
            tuple(q.get("evidence") or ()),
            _asked_after(q.get("position"), len(chunks)),
        )
        for q in record["questions"]
    )
    return Task(record["task_id"], chunks, questions, Ledger.name)


# For training


def write_rows(path: Path, tasks: Sequence[Task], batch_size: int = 40) -> None:
    """Write tasks as rows of the published training set."""
    rows = [
        _row(task, sample, batch, range(at, min(at + batch_size, len(task.questions))))
        for sample, task in enumerate(tasks)
        for batch, at in enumerate(range(0, len(task.questions), batch_size))
    ]
    table = pa.Table.from_pylist(storable_values(rows))
    pq.write_table(table, path, compression="zstd")


def _row(task: Task, sample: int, batch: int, which: range) -> dict[str, Any]:
    asked = [task.questions[i] for i in which]
    texts, chunks = [question.text for question in asked], list(task.chunks)
    notes = {"create_kwargs": {"filename": f"{task.id}.jsonl"}}
    search = {"create_kwargs": {"chunks": chunks}}
    return {
        "data_source": SOURCE,
        "prompt": [{"role": "user", "content": texts}],
        "context": "\n\n".join(chunks),
        "reward_model": {"ground_truth": [question.answers[0] for question in asked]},
        "agent_name": AGENT,
        "extra_info": {
            "task_id": task.id,
            "sample_index": sample,
            "batch_index": batch,
            "question_ids": [_qid(task, i) for i in which],
            "num_chunks": len(chunks),
            "question": texts,
            "positions": [_position(task, question) for question in asked],
            "categories": [question.category for question in asked],
            "tools_kwargs": {
                **{f"memory_{name}": notes for name in _NOTES},
                **{f"memory_{name}": search for name in _SEARCHES},
            },
        },
    }


def read_rows(path: Path) -> list[Task]:
    """Read tasks from rows of the published training set; a row is a task."""
    try:
        return [_trained(row, i) for i, row in enumerate(read_table(path).to_pylist())]
    except (OSError, pa.ArrowException, KeyError, TypeError, IndexError, AttributeError) as error:
        raise UserError(
            f"{path} holds no rows of questions: {type(error).__name__}: {error}",
            "name a Parquet file such as `recollect data ledger` writes",
        ) from None


def _trained(row: Mapping[str, Any], index: int) -> Task:
    info = row["extra_info"]
    searched = (info.get("tools_kwargs") or {}).get("memory_bm25_retrieve") or {}
    chunks = tuple((searched.get("create_kwargs") or {}).get("chunks") or [row["context"]])
    texts, golds = row["prompt"][0]["content"], row["reward_model"]["ground_truth"]
    if len(texts) != len(golds):
        raise KeyError(f"row {index} has {len(texts)} questions and {len(golds)} answers")
    positions = info.get("positions") or [None] * len(texts)
    categories = info.get("categories") or [""] * len(texts)
    questions = tuple(
        Question(text, _answers(gold), category, (), _asked_after(position, len(chunks)))
        for text, gold, category, position in zip(texts, golds, categories, positions, strict=True)
    )
    name = info.get("task_id") or f"{row['data_source']}-{info.get('index', index)}"
    batch = info.get("batch_index") or 0
    source = Ledger.name if row["data_source"] == SOURCE else row["data_source"]
    return Task(f"{name}-batch-{batch}" if batch else name, chunks, questions, source)


# Both


def _qid(task: Task, i: int) -> str:
    return f"{task.id}-q{i + 1}"


def _position(task: Task, question: Question) -> int:
    return len(task.chunks) - 1 if question.position is None else question.position


def _asked_after(position: int | None, chunks: int) -> int | None:
    return None if position is None or position >= chunks - 1 else position


def _answers(gold: Any) -> tuple[str, ...]:
    return tuple(map(str, gold)) if isinstance(gold, list) else (str(gold),)

"""LoCoMo as Parquet: written in verl's schema, read back as Tasks and as memories.

There is no column `prompt`: what an agent is shown is the agent's, which may be any.

A folder holds `train.parquet` and `test.parquet` (one row per question), `memories.parquet`,
`sessions.parquet`, `conversations.parquet` (for question answering) and `report.json`. The same
input gives the same bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recollect.errors import UserError
from recollect.files import replacing, write_text
from recollect.foreign import readable_json, storable_values
from recollect.memory.corpus import Corpus
from recollect.memory.entries import Draft, name_of
from recollect.memory.parquet import read_table
from recollect.tasks.conversations import locomo_qa
from recollect.tasks.conversations.locomo import (
    ADVERSARIAL,
    CATEGORIES,
    LEVELS,
    Conversation,
    Level,
    LocomoQuestion,
    read_locomo,
    split,
)
from recollect.tasks.files.manifest import Manifest, building, checked, write_manifest
from recollect.tasks.files.table import write_tasks
from recollect.types import Question, Task

_TEXTS = pa.list_(pa.string())
_WHERE = pa.struct({"sample_id": pa.string(), "namespace": pa.string()})
_TOOL = pa.struct({"create_kwargs": _WHERE, "execute_kwargs": _WHERE})
_TOOLS = ("search_memory", "manage_memory")
# A struct and not JSON text: verl's own dataset asks extra_info for its keys.
_EXTRA = pa.struct(
    {
        "index": pa.int64(),
        "split": pa.string(),
        "need_tools_kwargs": pa.bool_(),
        "tools_kwargs": pa.struct({tool: _TOOL for tool in _TOOLS}),
        "target_question": pa.string(),
        "target_answer": pa.string(),
        "answers": _TEXTS,
        "adversarial_answer": pa.string(),
        "namespace": pa.string(),
        "sample_id": pa.string(),
        "qa_index": pa.int64(),
        "category": pa.string(),
        "category_id": pa.int64(),
        "evidence": _TEXTS,
        "evidence_sessions": pa.list_(pa.int64()),
        **{f"include_{level}": pa.bool_() for level in LEVELS},
    }
)
_ROWS = pa.schema(
    {
        "data_source": pa.string(),
        "agent_name": pa.string(),
        "reward_model": pa.struct({"style": pa.string(), "ground_truth": pa.string()}),
        "extra_info": _EXTRA,
    }
)
_METADATA = {
    "speaker": pa.string(),
    "evidence": _TEXTS,
    "session": pa.string(),
    "timestamp": pa.string(),
    "source": pa.string(),
}
_MEMORIES = pa.schema(
    {"sample_id": pa.string(), "id": pa.string(), "content": pa.string(), **_METADATA}
)
_SESSIONS = pa.schema(dict.fromkeys(("sample_id", "session", "timestamp", "text"), pa.string()))


@dataclass(frozen=True)
class LocomoOptions:
    """Turn a LoCoMo file into tasks and memories."""

    input: Path
    """locomo10.json, or a part of it; may be gzipped."""
    output: Path
    """The folder to write."""
    observation: bool = True
    """Keep the memories of what was noted about each session."""
    conversation: bool = True
    """Keep the memories of what was said."""
    event_summary: bool = True
    """Keep the memories of what happened."""
    adversarial: bool = False
    """Keep the questions of category 5, which have no answer in the conversation."""
    seed: int = 42
    """Draws the split over conversations; 42 gives the published one."""
    train_fraction: float = 0.7
    """Share of the conversations for training."""
    test: tuple[str, ...] = ()
    """The test conversations by name, instead of drawing them."""
    agent_name: str = "tool_agent"
    """The agent that verl runs on these rows."""

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels of memories that are kept."""
        return tuple(level for level in LEVELS if getattr(self, level))


@dataclass(frozen=True)
class LocomoReport:
    """What was written."""

    tasks: Mapping[str, int]
    """Per split."""
    conversations: Mapping[str, Sequence[str]]
    """Per split."""
    categories: Mapping[str, int]
    memories: Mapping[str, int]
    """Per conversation."""
    adversarial_dropped: int
    problems: Sequence[str]
    """What was corrected or left out, and where."""


def build_locomo(options: LocomoOptions) -> LocomoReport:
    """Write a LoCoMo file as tasks and memories, and report what it holds."""
    if not options.levels:
        raise UserError("no level of memories is left", "keep at least one of the three")
    read = {conversation.id: conversation for conversation in read_locomo(options.input)}
    parts = split(list(read), options.seed, options.train_fraction, options.test)
    with building(options.output) as folder:
        return _build(read, parts, replace(options, output=folder))


def _build(
    read: Mapping[str, Conversation], parts: Mapping[str, list[str]], options: LocomoOptions
) -> LocomoReport:
    rows = {name: _rows([read[id] for id in ids], name, options) for name, ids in parts.items()}
    for name, part in rows.items():
        _write(options.output / f"{name}.parquet", part, _ROWS)
    kept = {id: kept_memories(conversation, options) for id, conversation in read.items()}
    memories = [row for id, drafts in kept.items() for row in _memory_rows(id, drafts)]
    _write(options.output / "memories.parquet", memories, _MEMORIES)
    sessions = [
        dict(zip(_SESSIONS.names, (id, s.name, s.time, s.text), strict=True))
        for id, conversation in read.items()
        for s in conversation.sessions
    ]
    _write(options.output / "sessions.parquet", sessions, _SESSIONS)
    write_tasks(options.output / locomo_qa.FILE, locomo_qa.conversation_tasks([*read.values()]))
    written = [row["extra_info"] for part in rows.values() for row in part]
    asked = sum(len(conversation.questions) for conversation in read.values())
    report = LocomoReport(
        {name: len(part) for name, part in rows.items()},
        parts,
        dict(sorted(Counter(info["category"] for info in written).items())),
        {id: len(drafts) for id, drafts in kept.items()},
        asked - len(written),
        [problem for conversation in read.values() for problem in conversation.problems],
    )
    text = readable_json(asdict(report), indent=2) + "\n"
    write_text(options.output / "report.json", text)
    _write_manifest(options, report)
    return report


def _write_manifest(options: LocomoOptions, report: LocomoReport) -> None:
    outputs = (*(f"{part}.parquet" for part in report.tasks), "memories.parquet")
    names = (*outputs, "sessions.parquet", locomo_qa.FILE, "report.json")
    counts = {**report.tasks, **{f"memories of {id}": n for id, n in report.memories.items()}}
    manifest = Manifest(
        locomo_qa.LocomoQA.name,
        {"levels": list(options.levels), "seed": options.seed},
        counts,
        problems=tuple(report.problems),
        inputs=checked([options.input]),
        outputs=checked(options.output / name for name in names),
    )
    write_manifest(options.output, manifest)


def kept_memories(conversation: Conversation, options: LocomoOptions) -> list[Draft]:
    """Return a conversation's memories on the levels that are kept, in the order of their ids."""
    return [draft for level in options.levels for draft in conversation.memories[level]]


def load_tasks(path: Path) -> list[Task]:
    """Read `train.parquet` or `test.parquet` as tasks; their chunks are the sessions."""
    chunks: dict[str, list[str]] = {}
    for row in _read(path.with_name("sessions.parquet"), _SESSIONS):
        chunks.setdefault(row["sample_id"], []).append(row["text"])
    shared = {id: tuple(texts) for id, texts in chunks.items()}
    return [_task(row, shared, path) for row in _read(path, _ROWS)]


def load_memories(folder: Path) -> dict[str, list[Draft]]:
    """Read `memories.parquet`: the memories of every conversation, in the order of their ids."""
    found: dict[str, list[Draft]] = {}
    for row in _read(folder / "memories.parquet", _MEMORIES):
        values = {name: row[name] for name in _METADATA}
        metadata = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        found.setdefault(row["sample_id"], []).append(Draft(row["content"], metadata))
    return found


def load_corpora(
    folder: Path, vectors: Callable[[Sequence[str]], np.ndarray] | None = None
) -> dict[str, Corpus]:
    """Index the memories of every conversation, as bases for trials.

    `vectors` looks up the vectors of texts, as an embedding cache does; without it only words can
    be searched.
    """
    corpora = {}
    for id, drafts in load_memories(folder).items():
        found = vectors([draft.content for draft in drafts]) if vectors else None
        corpora[id] = Corpus.build(id, drafts, found)
    return corpora


def _rows(
    conversations: Sequence[Conversation], part: str, options: LocomoOptions
) -> list[dict[str, Any]]:
    pairs = [
        (conversation, asked)
        for conversation in conversations
        for asked in conversation.questions
        if options.adversarial or asked.category != ADVERSARIAL
    ]
    return [_row(c, asked, i, part, options) for i, (c, asked) in enumerate(pairs)]


def _row(
    conversation: Conversation, asked: LocomoQuestion, index: int, part: str, options: LocomoOptions
) -> dict[str, Any]:
    place = {"sample_id": conversation.id, "namespace": conversation.namespace(asked)}
    return {
        "data_source": f"locomo-{conversation.id}",
        "agent_name": options.agent_name,
        "reward_model": {"style": "rule", "ground_truth": asked.answers[0]},
        "extra_info": {
            "index": index,
            "split": part,
            "need_tools_kwargs": True,
            "tools_kwargs": {
                tool: {"create_kwargs": place, "execute_kwargs": place} for tool in _TOOLS
            },
            "target_question": asked.text,
            "target_answer": asked.answers[0],
            "answers": asked.answers,
            "adversarial_answer": asked.adversarial_answer,
            **place,
            "qa_index": asked.index,
            "category": CATEGORIES[asked.category],
            "category_id": asked.category,
            "evidence": asked.evidence,
            "evidence_sessions": asked.sessions,
            **{f"include_{level}": level in options.levels for level in LEVELS},
        },
    }


def _memory_rows(id: str, drafts: Sequence[Draft]) -> list[dict[str, Any]]:
    return [
        {"sample_id": id, "id": name_of(n), "content": draft.content, **draft.metadata}
        for n, draft in enumerate(drafts, start=1)
    ]


def _task(row: Mapping[str, Any], chunks: Mapping[str, tuple[str, ...]], path: Path) -> Task:
    info = row["extra_info"]
    if info["sample_id"] not in chunks:
        fix = "keep sessions.parquet of the same run beside it"
        raise UserError(f"{path} asks about {info['sample_id']}, whose sessions are missing", fix)
    question = Question(
        info["target_question"],
        tuple(info["answers"]),
        info["category"],
        tuple(info["evidence_sessions"]),
    )
    kept = ("sample_id", "namespace", "qa_index", "category_id", "adversarial_answer")
    meta = {key: info[key] for key in kept} | {
        "cluster": info["sample_id"],
        "dia_ids": list(info["evidence"]),
    }
    return Task(info["namespace"], chunks[info["sample_id"]], (question,), "locomo", meta)


def _write(path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    table = pa.Table.from_pylist(storable_values(list(rows)), schema=schema)
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def _read(path: Path, schema: pa.Schema) -> list[dict[str, Any]]:
    fix = (
        "make it with `recollect data locomo --input locomo10.json --output FOLDER`, and name that"
        " folder with --tasks.folder"
    )
    try:
        table = read_table(path)
    except FileNotFoundError:
        raise UserError(f"there is no file {path}", fix) from None
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path} cannot be read: {error}", fix) from None
    if table.schema.remove_metadata() != schema:
        raise UserError(f"{path} does not have the columns of a LoCoMo file", fix)
    return table.to_pylist()

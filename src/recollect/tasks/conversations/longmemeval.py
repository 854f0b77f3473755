"""LongMemEval: one question about what a user said to an assistant over many dated sessions.

Reads the official files (oracle, S or M), with their flaws, and says what it found. Knows nothing
of judges: a task's meta says what one needs to know.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from recollect.errors import UserError
from recollect.tasks.files.findings import Findings
from recollect.tasks.files.published import TabledTasks
from recollect.tasks.files.records import read_records
from recollect.types import Question, Task

TYPES = (
    "single-session-user",
    "single-session-assistant",
    "single-session-preference",
    "multi-session",
    "temporal-reasoning",
    "knowledge-update",
)
ABSTENTION = "abstention"
"""The category of questions whose answer was never said: right is to say that one does not know."""
VARIANTS = ("oracle", "s", "m")
"""Only the sessions with the answer, about 50 sessions, or about 500."""

_TEXTS = ("question_id", "question_type", "question", "answer")
_HAYSTACK = ("haystack_dates", "haystack_session_ids", "haystack_sessions")
_LISTS = (*_HAYSTACK, "answer_session_ids")
_DATE = re.compile(r"(\d{4})/(\d\d)/(\d\d)(?: \(\w+\))?(?: (\d\d):(\d\d))?")
_FIX = (
    "download longmemeval_{oracle,s_cleaned,m_cleaned}.json (xiaowu0162/longmemeval-cleaned on"
    " Hugging Face, MIT) and type `recollect data longmemeval --input FILE`"
)


@dataclass(frozen=True)
class LongMemEval(TabledTasks):
    """What `recollect data longmemeval` wrote, as a task family."""

    name: ClassVar[str] = "longmemeval"
    scorers: ClassVar[tuple[str, ...]] = ("longmemeval_judge",)
    variants: ClassVar[tuple[str, ...]] = VARIANTS
    fix: ClassVar[str] = _FIX

    variant: str = "s"
    folder: Path = Path("data/longmemeval")


def read_longmemeval(path: Path, findings: Findings) -> Iterator[Task]:
    """Read an official file, one task at a time."""
    seen: set[str] = set()
    for place, item in read_records(path, "question of LongMemEval"):
        if wrong := next(_misshapen(item), ""):
            raise UserError(f"{place} does not have the shape of LongMemEval: {wrong}", _FIX)
        task = parse_item(item, findings)
        if task.id in seen:
            raise UserError(f"{path} holds {task.id} more than once", "keep one of them")
        seen.add(task.id)
        yield task


def _misshapen(item: Mapping[str, Any]) -> Iterator[str]:
    """Say what is wrong with an item, field by field; nothing where it can be parsed."""
    for name in (*_TEXTS, *_LISTS):
        if name not in item:
            yield f"{name!r} is missing"
        elif name in _LISTS and not isinstance(item[name], list):
            yield f"{name!r} is not a list"
    lengths = {name: len(item[name]) for name in _HAYSTACK}
    if len(set(lengths.values())) > 1:
        yield "of unequal length are " + ", ".join(f"{k!r} ({n})" for k, n in lengths.items())
    for name in ("haystack_session_ids", "answer_session_ids"):
        if not all(isinstance(id, str | int) for id in item[name]):
            yield f"{name!r} is not a list of names"
    dated = [("haystack_dates", date) for date in item["haystack_dates"]]
    asked = item.get("question_date")
    for name, date in [*dated, *([("question_date", asked)] if asked else [])]:
        if not _DATE.fullmatch(str(date).strip()):
            yield f"{name!r}: {date!r} is no date"
    for number, turns in enumerate(item["haystack_sessions"]):
        if not isinstance(turns, list) or not all(map(_is_turn, turns)):
            yield f"'haystack_sessions' {number} is not a list of turns with a role and a content"


def _is_turn(turn: Any) -> bool:
    return isinstance(turn, dict) and {"role", "content"} <= turn.keys()


def parse_item(item: Mapping[str, Any], findings: Findings) -> Task:
    """Make a task of one item: its sessions by date are the chunks."""
    id, kind = str(item["question_id"]), str(item["question_type"])
    if kind not in TYPES:
        findings.problems.append(f"{id}: the type {kind!r} is unknown")
    sessions = sorted(
        zip(
            item["haystack_dates"],
            item["haystack_session_ids"],
            item["haystack_sessions"],
            strict=True,
        ),
        key=lambda session: _when(session[0]),  # stable: equal dates keep the file's order
    )
    evidence = _evidence(id, item["answer_session_ids"], sessions, findings)
    asked = str(item["question"]).strip()
    date = item.get("question_date")
    if date:
        asked = f"It is {date} now. {asked}"
        late = [sessions[i][1] for i in evidence if _when(sessions[i][0]) > _when(date)]
        findings.problems += [
            f"{id}: {name} holds evidence from after the question" for name in late
        ]
    else:
        findings.problems.append(f"{id}: has no date of the question")
    abstains = id.endswith("_abs")
    category = ABSTENTION if abstains else kind
    findings.categories[category] += 1
    turns = [[i, n] for i in evidence for n, turn in enumerate(sessions[i][2]) if _marked(turn)]
    about = {
        "id": id,
        "type": kind,
        "abstention": abstains,
        "date": date,
        "evidence_turns": turns,
    }
    answer = "" if item["answer"] is None else str(item["answer"]).strip()
    if not answer:
        findings.problems.append(f"{id}: has no answer")
    question = Question(asked, (answer,), category, evidence)
    meta = {
        "questions": [about],
        "sessions": [str(session[1]) for session in sessions],
        "dates": [session[0] for session in sessions],
    }
    chunks = tuple(_session(date, turns) for date, _, turns in sessions)
    return Task(id, chunks, (question,), LongMemEval.name, meta)


def _evidence(
    id: str, wanted: Sequence[str], sessions: Sequence[tuple[str, str, Any]], findings: Findings
) -> tuple[int, ...]:
    names = [session[1] for session in sessions]
    for name in sorted(set(wanted) - set(names), key=str):
        findings.problems.append(f"{id}: there is no session {name} that its evidence names")
    for name, times in Counter(names).items():
        if times > 1:
            findings.problems.append(f"{id}: holds the session {name} {times} times")
    return tuple(i for i, name in enumerate(names) if name in wanted)


def _session(date: str, turns: Sequence[Mapping[str, Any]]) -> str:
    said = [f"{turn['role']}: {str(turn['content'] or '').strip()}" for turn in turns]
    return "\n\n".join([f"[{date}]", *said])


def _marked(turn: Mapping[str, Any]) -> bool:
    return bool(turn.get("has_answer"))


def _when(date: str) -> tuple[int, ...]:
    found = _DATE.fullmatch(str(date).strip())
    if not found:
        raise ValueError(f"{date!r} is no date")
    return tuple(int(part or 0) for part in found.groups())

"""BEAM: a user's long chats with an assistant, and twenty questions about each, of ten abilities.

Reads the official files and says what it found. Answers are graded by their rubric, which a task's
meta holds; knows nothing of judges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from recollect.errors import UserError
from recollect.files import loads
from recollect.tasks.files.findings import Findings
from recollect.tasks.files.published import TabledTasks
from recollect.tasks.files.records import SUFFIXES, read_records, refuse_empty, refuse_folder
from recollect.types import Question, Task

ABILITIES = (
    "abstention",
    "contradiction_resolution",
    "event_ordering",
    "information_extraction",
    "instruction_following",
    "knowledge_update",
    "multi_session_reasoning",
    "preference_following",
    "summarization",
    "temporal_reasoning",
)
VARIANTS = ("100k", "500k", "1m", "10m")

_ANSWERS = ("answer", "ideal_answer", "ideal_response", "ideal_summary", "expected_compliance")
_MARKER = re.compile(r"\s*->->[^\n]{0,16}$")
"""A marker of the plan that the chats were made from; no user ever said it."""
_WHAT = "conversation of BEAM"
_FIX = (
    "download the folder chats/100K of github.com/mohammadtavakoli78/BEAM (CC BY-SA 4.0) and type"
    " `recollect data beam --input FOLDER --variant 100k`"
)


@dataclass(frozen=True)
class Beam(TabledTasks):
    """What `recollect data beam` wrote, as a task family: one task per conversation."""

    name: ClassVar[str] = "beam"
    scorers: ClassVar[tuple[str, ...]] = ("beam_judge",)
    variants: ClassVar[tuple[str, ...]] = VARIANTS
    fix: ClassVar[str] = _FIX

    variant: str = "100k"
    folder: Path = Path("data/beam")


def read_beam(path: Path, findings: Findings) -> Iterator[Task]:
    """Read conversations: one per line of a file, or one per numbered folder."""
    seen: set[str] = set()
    found = _folders(path) if path.is_dir() else read_records(path, _WHAT)
    for place, item in found:
        try:
            task = parse_item(item, findings)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise UserError(f"{place} does not have the shape of BEAM: {error!r}", _FIX) from error
        if task.id in seen:
            raise UserError(f"{path} holds {task.id} more than once", "keep one of them")
        seen.add(task.id)
        yield task
    refuse_empty(len(seen), [path], _WHAT, _FIX)


def input_files(path: Path) -> list[Path]:
    """Return the files that `read_beam` reads."""
    if not path.is_dir():
        return [path]
    return [file for folder in _numbered(path) for file in (_chat(folder), _questions(folder))]


def _numbered(path: Path) -> list[Path]:
    return sorted((f for f in path.iterdir() if f.name.isdigit()), key=lambda f: int(f.name))


def _chat(folder: Path) -> Path:
    # The shortened chat is the one upstream's own answers were made from. Its name is misspelt.
    shortened = folder / "chat_trunecated.json"
    return shortened if shortened.is_file() else folder / "chat.json"


def _questions(folder: Path) -> Path:
    return folder / "probing_questions" / "probing_questions.json"


def _folders(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    folders = _numbered(path)
    if not folders and any(file.name.endswith(SUFFIXES) for file in path.iterdir()):
        refuse_folder(path, _FIX)
    for folder in folders:
        try:
            item = {
                "conversation_id": int(folder.name),
                "chat": loads(_chat(folder).read_bytes()),
                "probing_questions": loads(_questions(folder).read_bytes()),
            }
        except (OSError, ValueError) as error:
            raise UserError(f"{folder} cannot be read: {error}", _FIX) from None
        yield str(folder), item


def parse_item(item: Mapping[str, Any], findings: Findings) -> Task:
    """Make a task of one conversation: its exchanges are the chunks."""
    id = f"beam-{item['conversation_id']}"
    chunks: list[str] = []
    where: dict[int, int] = {}
    for batch in item["chat"]:
        date = batch.get("time_anchor")
        for exchange in batch["turns"]:
            date = next((m["time_anchor"] for m in exchange if m.get("time_anchor")), date)
            numbers = (m["id"] for m in exchange if m.get("id") is not None)
            where.update({int(number): len(chunks) for number in numbers})
            said = [f"{m['role']}: {_MARKER.sub('', m['content']).strip()}" for m in exchange]
            chunks.append("\n\n".join([f"[{date}]" if date else "[no date]", *said]))
    questions, about = [], []
    for ability, asked in item["probing_questions"].items():
        if ability not in ABILITIES:
            findings.problems.append(f"{id}: the ability {ability!r} is unknown")
        for number, probe in enumerate(asked):
            name = f"{id}-{ability}-{number + 1}"
            questions.append(_question(name, ability, probe, where, findings))
            rubric = [str(line) for line in probe["rubric"]]
            about.append({"id": name, "type": ability, "rubric": rubric})
            findings.categories[ability] += 1
    return Task(id, tuple(chunks), tuple(questions), Beam.name, {"questions": about})


def _question(
    name: str,
    ability: str,
    probe: Mapping[str, Any],
    where: Mapping[int, int],
    findings: Findings,
) -> Question:
    answers = tuple(str(probe[key]).strip() for key in _ANSWERS if probe.get(key))
    if not answers:
        findings.problems.append(f"{name}: has no answer, only a rubric")
        answers = ("; ".join(map(str, probe["rubric"])),)
    ids = list(_numbers(probe.get("source_chat_ids")))
    if not ids and ability != "abstention":
        findings.problems.append(f"{name}: names no evidence")
    if missing := sorted({id for id in ids if id not in where}):
        findings.problems.append(f"{name}: there are no messages {missing} that its evidence names")
    evidence = tuple(sorted({where[id] for id in ids if id in where}))
    return Question(str(probe["question"]).strip(), answers[:1], ability, evidence)


def _numbers(value: Any) -> Iterator[int]:
    """Find the message numbers in a list, or in lists by name."""
    if isinstance(value, int):
        yield value
    elif isinstance(value, Mapping):
        yield from (n for part in value.values() for n in _numbers(part))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from (n for part in value for n in _numbers(part))

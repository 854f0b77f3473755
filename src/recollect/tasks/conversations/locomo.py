"""LoCoMo: long conversations of two people, memories of them on three levels, and questions.

Reads `locomo10.json` as it is, with its flaws, and says what it had to correct or leave out. Knows
nothing of Parquet, stores or agents.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, Literal, get_args

from recollect.errors import UserError
from recollect.files import loads
from recollect.foreign import readable_json
from recollect.memory.entries import Draft
from recollect.tasks.files.records import refuse_empty, refuse_folder
from recollect.tasks.files.unpacked import read_bytes

Level = Literal["observation", "conversation", "event_summary"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""What was noted about a session, what was said in it, and what happened around it."""

CATEGORIES: Mapping[int, str] = MappingProxyType(
    {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
)
ADVERSARIAL = 5
UNANSWERABLE = ("Not mentioned in the conversation", "No information available")
"""What counts as right when the conversation does not hold the answer."""

IDS = tuple(f"conv-{n}" for n in (26, 30, 41, 42, 43, 44, 47, 48, 49, 50))
"""The published conversations, in the order of the file: splits are drawn over all of them."""

_DIA_ID = re.compile(r"D:?(\d+):(\d+)")
_NO_TIME = "unknown time"
_PUBLISHED = "give the file locomo10.json as published"


@dataclass(frozen=True)
class Session:
    """One sitting of a conversation."""

    name: str
    """session_1, session_2, ..."""
    time: str
    text: str
    dia_ids: tuple[str, ...]


@dataclass(frozen=True)
class LocomoQuestion:
    """A question about a conversation, with its answers and where they are."""

    index: int
    """In the conversation's own list, whatever was left out."""
    text: str
    answers: tuple[str, ...]
    category: int
    evidence: tuple[str, ...]
    """Ids of turns, those that exist."""
    sessions: tuple[int, ...]
    """Positions of the sessions that hold the evidence."""
    adversarial_answer: str = ""
    """The wrong answer that a question of category 5 invites."""


@dataclass(frozen=True)
class Conversation:
    """A conversation with its memories and questions."""

    id: str
    speakers: tuple[str, str]
    sessions: tuple[Session, ...]
    memories: Mapping[Level, tuple[Draft, ...]]
    questions: tuple[LocomoQuestion, ...]
    problems: tuple[str, ...]
    """What was corrected or left out, and where."""

    def namespace(self, asked: LocomoQuestion) -> str:
        """Name the base of a question's trials: the same question always has the same name."""
        content = [self.id, asked.index, asked.text, asked.answers, asked.category, asked.evidence]
        digest = hashlib.sha256(readable_json(content).encode()).hexdigest()
        return f"{self.id}-qa{asked.index}-{digest[:8]}"


def read_locomo(path: Path) -> list[Conversation]:
    """Read a LoCoMo file, plain or gzipped."""
    refuse_folder(path, _PUBLISHED)
    try:
        data = loads(read_bytes(path))
    except FileNotFoundError:
        fix = "download data/locomo10.json of snap-research/locomo and name it here"
        raise UserError(f"there is no file {path}", fix) from None
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON: {error}", "download it again") from None
    if not isinstance(data, list):
        raise UserError(f"{path} is not a list of conversations", "give the file locomo10.json")
    refuse_empty(len(data), [path], "conversation", _PUBLISHED)
    conversations = []
    for i, item in enumerate(data):
        try:
            conversations.append(parse_conversation(_map(item, f"{path} item {i}")))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            what = f"{path} item {i} does not have the shape of a LoCoMo conversation: {error!r}"
            raise UserError(what, _PUBLISHED) from error
    ids = [conversation.id for conversation in conversations]
    for id in ids:
        if ids.count(id) > 1:
            raise UserError(f"{path} holds {id} more than once", "keep one of them")
    return conversations


def split(
    ids: Sequence[str], seed: int = 42, train_fraction: float = 0.7, test: Sequence[str] = ()
) -> dict[str, list[str]]:
    """Deal conversations to `train` and `test`; no conversation is in both.

    `test` names the test conversations. Without it they are drawn: the ten published ones as the
    published split draws them, so that a part of the file keeps to the split of the whole.
    """
    if unknown := sorted(set(test) - set(ids)):
        raise UserError(
            f"test names {', '.join(unknown)}, which are not in the file",
            f"choose from {', '.join(ids)}",
        )
    if test:
        return {"train": [i for i in ids if i not in test], "test": [i for i in ids if i in test]}
    if not 0 < train_fraction <= 1:
        raise UserError(f"train_fraction is {train_fraction}", "set it above 0 and at most to 1")
    order = list(IDS if set(ids) <= set(IDS) else ids)
    Random(seed).shuffle(order)
    n = round(train_fraction * len(order))
    parts = {"train": order[:n], "test": order[n:]}
    return {name: [id for id in part if id in ids] for name, part in parts.items()}


def parse_conversation(item: Mapping[str, Any]) -> Conversation:
    """Read one item of a LoCoMo file."""
    id = _text(item, "sample_id", "a conversation")
    talk = _map(item.get("conversation"), f"conversation of {id}")
    problems: list[str] = []
    numbers = _numbers(talk, r"session_(\d+)")
    sessions = tuple(_session(talk, n, id) for n in numbers)
    memories: dict[Level, tuple[Draft, ...]] = {
        "observation": _saying(_observations(item, talk), id, problems),
        "conversation": _saying(_turns(talk, numbers), id, problems),
        "event_summary": _saying(_events(item, talk), id, problems),
    }
    where = {dia: at for at, session in enumerate(sessions) for dia in session.dia_ids}
    found = [
        _asked(_map(qa, f"question {i} of {id}"), i, id, where, problems)
        for i, qa in enumerate(item.get("qa", []))
    ]
    speakers = (_text(talk, "speaker_a", id), _text(talk, "speaker_b", id))
    questions = tuple(asked for asked in found if asked)
    return Conversation(id, speakers, sessions, memories, questions, tuple(problems))


def _session(talk: Mapping[str, Any], n: int, id: str) -> Session:
    name, time = f"session_{n}", _time(talk, n)
    lines = [f"[{name}, {time}]"]
    for turn in talk[name]:
        text = (turn.get("text") or "").strip()
        photo = f"[shares a photo: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
        if text or photo:
            said = " ".join(filter(None, (text, photo)))
            lines.append(f"{_text(turn, 'speaker', f'{name} of {id}')}: {said}")
    dia_ids = tuple(str(turn.get("dia_id", "")) for turn in talk[name])
    return Session(name, time, "\n".join(lines), dia_ids)


def _saying(drafts: Iterator[Draft], id: str, problems: list[str]) -> tuple[Draft, ...]:
    """Leave out memories that say nothing."""
    kept = []
    for draft in drafts:
        if draft.content.strip():
            kept.append(draft)
        else:
            place = f"{id} {draft.metadata['source']} {', '.join(draft.metadata['evidence'])}"
            problems.append(f"{place}: a memory without text; left out")
    return tuple(kept)


def _observations(conversation: Mapping[str, Any], talk: Mapping[str, Any]) -> Iterator[Draft]:
    noted = conversation.get("observation", {})
    for n in _numbers(noted, r"session_(\d+)_observation"):
        for speaker, facts in noted[f"session_{n}_observation"].items():
            for item in facts:
                # A fact and its turn; but some have a list of turns, and one may have none.
                fact, *turns = [item] if isinstance(item, str) else item
                ids = tuple(
                    dia for turn in turns for dia in ([turn] if isinstance(turn, str) else turn)
                )
                yield _memory(fact, speaker, ids, n, _time(talk, n), "observation")


def _turns(talk: Mapping[str, Any], numbers: Sequence[int]) -> Iterator[Draft]:
    for n in numbers:
        for turn in talk[f"session_{n}"]:
            # The exact text, spaces and all: embeddings are found again by it.
            text, ids = turn.get("text") or "", (str(turn.get("dia_id", "")),)
            yield _memory(text, turn["speaker"], ids, n, _time(talk, n), "conversation")


def _events(item: Mapping[str, Any], talk: Mapping[str, Any]) -> Iterator[Draft]:
    summaries = item.get("event_summary", {})
    for n in _numbers(summaries, r"events_session_(\d+)"):
        key = f"events_session_{n}"
        time = _time(talk, n, summaries[key].get("date"))
        for speaker, events in summaries[key].items():
            for event in events if speaker != "date" else ():
                yield _memory(event, speaker, (key,), n, time, "event_summary")


def _memory(
    content: str, speaker: str, evidence: tuple[str, ...], n: int, time: str, source: Level
) -> Draft:
    return Draft(
        content,
        {
            "speaker": speaker,
            "evidence": evidence,
            "session": f"session_{n}",
            "timestamp": time,
            "source": source,
        },
    )


def _asked(
    qa: Mapping[str, Any], index: int, id: str, where: Mapping[str, int], problems: list[str]
) -> LocomoQuestion | None:
    place, category = f"{id} qa{index}", int(qa.get("category", 0))
    if category not in CATEGORIES:
        problems.append(f"{place}: category {category} is unknown; left out")
        return None
    answers = _answers(qa, place, problems)
    if not answers:
        problems.append(f"{place}: has no answer; left out")
        return None
    evidence = _evidence(qa.get("evidence", []), place, where, problems)
    sessions = tuple(sorted({where[dia] for dia in evidence}))
    wrong = str(qa.get("adversarial_answer", "")) if category == ADVERSARIAL else ""
    return LocomoQuestion(
        index, _text(qa, "question", place), answers, category, evidence, sessions, wrong
    )


def _answers(qa: Mapping[str, Any], place: str, problems: list[str]) -> tuple[str, ...]:
    answer = qa.get("answer")
    if answer is not None and not isinstance(answer, str):
        problems.append(f"{place}: the answer {answer!r} is not a text; read as {str(answer)!r}")
    own = (str(answer).strip(),) if answer is not None and str(answer).strip() else ()
    return (*own, *UNANSWERABLE) if qa["category"] == ADVERSARIAL else own


def _evidence(
    raw: Any, place: str, where: Mapping[str, int], problems: list[str]
) -> tuple[str, ...]:
    """Return the turns that evidence ids name, where they can be understood."""
    found: dict[str, None] = {}
    items = [raw] if isinstance(raw, str) else list(raw or ())
    if not items:
        problems.append(f"{place}: names no evidence")
    for text in map(str, items):
        ids = [f"D{int(session)}:{int(turn)}" for session, turn in _DIA_ID.findall(text)]
        known = [dia for dia in ids if dia in where]
        if not known or len(known) < len(ids):
            problems.append(f"{place}: evidence {text!r} names no turn of the conversation")
        elif ids != [text]:
            problems.append(f"{place}: evidence {text!r} is read as {', '.join(ids)}")
        found.update(dict.fromkeys(known))
    return tuple(found)


def _time(talk: Mapping[str, Any], n: int, date: Any = None) -> str:
    return str(talk.get(f"session_{n}_date_time") or date or _NO_TIME)


def _numbers(keys: Mapping[str, Any], pattern: str) -> list[int]:
    """Return the sessions that are really there: some files date more than they hold."""
    matches = ((re.fullmatch(pattern, key), value) for key, value in keys.items())
    return sorted(int(match[1]) for match, value in matches if match and value)


def _map(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{where} is not an object", _PUBLISHED)
    return value


def _text(item: Mapping[str, Any], key: str, where: str) -> str:
    value = item.get(key)
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{where} has no {key}", _PUBLISHED)
    return value

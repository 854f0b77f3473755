"""World: small made-up conversations in LoCoMo's own schema, with memories to search and edit.

Two people say what they love, among small talk, over a few sessions. A question names a person and
a kind of thing; what was said names neither, so a search for the question finds only chatter that
sounds like an answer. Made from a seed; nothing is downloaded. Knows nothing of agents or models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from types import MappingProxyType
from typing import Any, ClassVar

from recollect.errors import UserError
from recollect.memory.corpus import Corpus
from recollect.seeds import derive
from recollect.tasks.base import Split, Vectors
from recollect.tasks.conversations.locomo import (
    CATEGORIES,
    LEVELS,
    Conversation,
    LocomoQuestion,
    parse_conversation,
)
from recollect.types import Question, Task

PEOPLE = ("Ada", "Ben", "Cleo", "Dev", "Eva", "Finn", "Gus", "Hana")
VALUES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "drink": ("tea", "coffee", "cider", "cocoa", "milk", "juice"),
        "pet": ("otter", "parrot", "ferret", "rabbit", "pony", "gecko"),
        "city": ("Lisbon", "Oslo", "Kyoto", "Quito", "Cork", "Lima"),
        "sport": ("tennis", "rugby", "golf", "judo", "rowing", "skiing"),
        "metal": ("gold", "silver", "copper", "iron", "tin", "brass"),
        "tree": ("oak", "birch", "maple", "willow", "cedar", "elm"),
    }
)
PLANS = ("walk", "nap", "film", "chat")
MONTHS = ("May", "June", "July", "August", "September", "October")
FACT = "I love {value}"
QUESTION = "Which {kind} would {person} pick?"
OBSERVATION = "{person} would pick a {plan}"
EVENT = "{person} visits {friend}"
GREETING = "Hi {friend}"
SINGLE_HOP = 4
Fact = tuple[str, str, str]
"""A person, a kind of thing, and the one of it that the person loves."""
_BASE = re.compile(r"world-(train|test)-(\d+)-(\d+)")


@dataclass(frozen=True)
class World:
    """One conversation and one question about it per task."""

    name: ClassVar[str] = "world"
    metric: ClassVar[str] = "answer_match"
    sessions: int = 3
    facts: int = 3
    """Things that each of the two people says to love, each of another kind."""

    def __post_init__(self) -> None:
        if self.sessions < 1:
            raise UserError(f"sessions is {self.sessions}", "set --tasks.sessions to 1 or more")
        if not 1 <= self.facts <= len(VALUES):
            raise UserError(
                f"facts is {self.facts}, but there are {len(VALUES)} kinds of things",
                f"set --tasks.facts to 1 up to {len(VALUES)}",
            )

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Ask one question about the index-th conversation of a split."""
        conversation = parse_conversation(self.conversation(index, seed, split))
        asked = Random(derive(seed, "question", split, index)).choice(conversation.questions)
        return self._task(conversation, asked)

    def siblings(self, task: Task) -> list[Task]:
        """Return the other questions about a task's conversation."""
        name = _BASE.fullmatch(task.meta["sample_id"])
        if not name:
            return []
        split: Split = "train" if name[1] == "train" else "test"
        conversation = parse_conversation(self.conversation(int(name[3]), int(name[2]), split))
        every = (self._task(conversation, asked) for asked in conversation.questions)
        return [other for other in every if other.id != task.id]

    def _task(self, conversation: Conversation, asked: LocomoQuestion) -> Task:
        question = Question(asked.text, asked.answers, CATEGORIES[asked.category], asked.sessions)
        namespace = conversation.namespace(asked)
        meta = {
            "sample_id": conversation.id,
            "namespace": namespace,
            "qa_index": asked.index,
            "category_id": asked.category,
            "dia_ids": list(asked.evidence),
        }
        chunks = tuple(session.text for session in conversation.sessions)
        return Task(namespace, chunks, (question,), self.name, meta)

    def guesses(self, task: Task, question: Question | None = None) -> list[str]:
        """Return what a question of its kind can be answered with, or any question."""
        asked = question.answers[0] if question else None
        known = VALUES.values()
        return [value for values in known if asked is None or asked in values for value in values]

    def size(self, split: Split) -> int | None:
        """Say that there is no end."""
        return None

    def longer(self, times: int) -> World:
        """Return conversations of `times` as many sessions, with more small talk."""
        return replace(self, sessions=self.sessions * times)

    def corpora(self, vectors: Vectors | None = None) -> Mapping[str, Corpus]:
        """Return the memories of every conversation, indexed when they are first asked for."""
        return Corpora(self, vectors)

    def conversation(self, index: int, seed: int = 0, split: Split = "train") -> dict[str, Any]:
        """Make up one item of a LoCoMo file."""
        rng = Random(derive(seed, self.name, split, index))
        people = rng.sample(PEOPLE, 2)
        loved = _draw(people, rng.sample(list(VALUES), self.facts), split, rng)
        said = _spread(loved, self.sessions, rng)
        talk: dict[str, Any] = dict(zip(("speaker_a", "speaker_b"), people, strict=True))
        item: dict[str, Any] = {
            "sample_id": f"world-{split}-{seed}-{index}",
            "conversation": talk,
            "observation": {},
            "event_summary": {},
            "qa": [],
        }
        told: dict[Fact, list[str]] = {fact: [] for fact in loved}
        for n, facts in enumerate(said, start=1):
            date = date_of(n)
            who, friend = rng.sample(people, 2)
            greeting = GREETING.format(friend=friend)
            turns = [{"speaker": who, "dia_id": f"D{n}:1", "text": greeting}]
            for at, (person, kind, value) in enumerate(facts, start=2):
                text = FACT.format(value=value)
                turns.append({"speaker": person, "dia_id": f"D{n}:{at}", "text": text})
                told[person, kind, value].append(f"D{n}:{at}")
            talk[f"session_{n}"], talk[f"session_{n}_date_time"] = turns, date
            item["observation"][f"session_{n}_observation"] = {
                person: [[OBSERVATION.format(person=person, plan=rng.choice(PLANS)), f"D{n}:1"]]
                for person in people
            }
            event = EVENT.format(person=who, friend=friend)
            item["event_summary"][f"events_session_{n}"] = {who: [event], "date": date}
        item["qa"] = [_asked(*fact, turns) for fact, turns in told.items()]
        return item


class Corpora(Mapping[str, Corpus]):
    """Bases by the names of conversations: made up again from the name, the latest ones kept."""

    def __init__(self, world: World, vectors: Vectors | None = None, keep: int = 4096) -> None:
        self._world = world
        self._vectors = vectors
        self._build = lru_cache(keep)(self._built)
        self._names: dict[str, None] = {}

    def __getitem__(self, name: str) -> Corpus:
        corpus = self._build(name)
        self._names[name] = None
        return corpus

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._names))

    def __len__(self) -> int:
        return len(self._names)

    def _built(self, name: str) -> Corpus:
        found = _BASE.fullmatch(name)
        if not found:
            raise KeyError(name)
        split: Split = "train" if found[1] == "train" else "test"
        memories = parse_conversation(
            self._world.conversation(int(found[3]), int(found[2]), split)
        ).memories
        drafts = [draft for level in LEVELS for draft in memories[level]]
        known = self._vectors([d.content for d in drafts]) if self._vectors else None
        return Corpus.build(name, drafts, known)


def date_of(session: int) -> str:
    """Return when the people talk: once a month, half a year long, then the next year."""
    year, month = divmod(session - 1, len(MONTHS))
    return f"8 {MONTHS[month]} {2023 + year}"


def _draw(people: list[str], kinds: list[str], split: Split, rng: Random) -> list[Fact]:
    """Draw what each person loves of each kind; both splits never hold the same of one person."""
    drawn: list[Fact] = []
    for kind in kinds:
        taken: set[str] = set()
        for person in people:
            half = (PEOPLE.index(person) + (split == "test")) % 2
            value = rng.choice([v for v in VALUES[kind][half::2] if v not in taken])
            taken.add(value)
            drawn.append((person, kind, value))
    return drawn


def _spread(loved: list[Fact], sessions: int, rng: Random) -> list[list[Fact]]:
    """Say everything once, or again where there are more sessions; equally much in each of them.

    A session that says nothing would tell by its length that it holds no evidence.
    """
    each = -(-len(loved) // sessions)
    order = [
        fact
        for _ in range(-(-sessions * each // len(loved)))
        for fact in rng.sample(loved, len(loved))
    ]
    return [order[n * each : (n + 1) * each] for n in range(sessions)]


def _asked(person: str, kind: str, value: str, evidence: list[str]) -> dict[str, Any]:
    question = QUESTION.format(kind=kind, person=person)
    return {
        "question": question,
        "answer": value,
        "evidence": evidence,
        "category": SINGLE_HOP,
    }

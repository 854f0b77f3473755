"""Recall: who chose what, told over many chunks, where one mention of several counts.

A subject is a person and a category (Maria's fruit). Each question asks for the first or the
latest value of its subject; its other mentions do not count, and distractors are about subjects
that are never asked. Made from a seed; nothing is downloaded. Knows nothing of agents or models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType
from typing import ClassVar, Literal

from recollect.errors import UserError
from recollect.seeds import derive
from recollect.types import Question, Task

Keep = Literal["latest", "first"]
Split = Literal["train", "test"]
Subject = tuple[str, str]
"""A person and a category."""

_ATTEMPTS = 256  # each draw falls into the wanted split with chance 1/2


@dataclass(frozen=True)
class Wording:
    """The words a story is made of, and its sentences with {person}, {category} and {value}."""

    people: tuple[str, ...]
    values: Mapping[str, tuple[str, ...]]
    """Per category; no value belongs to two."""
    facts: tuple[str, ...]
    questions: Mapping[Keep, str]
    filler: tuple[str, ...] = ()
    """Sentences that say nothing about anybody."""

    @property
    def subjects(self) -> list[Subject]:
        return [(person, category) for person in self.people for category in self.values]


_VALUES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "fruit": ("mango", "pear", "plum", "apple", "grape", "melon", "cherry", "lemon"),
        "colour": ("red", "blue", "green", "pink", "white", "black", "yellow", "purple"),
        "sport": ("tennis", "chess", "rugby", "golf", "judo", "boxing", "rowing", "skiing"),
        "metal": ("gold", "silver", "copper", "iron", "tin", "zinc", "nickel", "brass"),
        "animal": ("otter", "falcon", "tiger", "badger", "heron", "lynx", "seal", "gecko"),
        "city": ("Lisbon", "Oslo", "Kyoto", "Quito", "Cairo", "Dublin", "Hanoi", "Perth"),
        "instrument": ("cello", "flute", "harp", "oboe", "banjo", "piano", "trumpet", "drum"),
        "tree": ("oak", "birch", "maple", "willow", "cedar", "elm", "aspen", "pine"),
    }
)

PLAIN = Wording(
    people=("I",),
    values=_VALUES,
    facts=("I chose {value}.",),
    questions=MappingProxyType(
        {
            "first": "Which {category} did I choose first?",
            "latest": "Which {category} did I choose last?",
        }
    ),
)
"""A diary in a small closed vocabulary: the words the demo's model knows."""

ENGLISH = Wording(
    people=(
        *("Amira", "Bruno", "Chiara", "Daniel", "Elena", "Farid", "Greta", "Hassan"),
        *("Ingrid", "Jonas", "Keiko", "Lukas", "Maria", "Nadia", "Oscar", "Pablo"),
        *("Quentin", "Rosa", "Samir", "Tomas", "Ursula", "Victor", "Wanda", "Yusuf"),
    ),
    values=_VALUES,
    facts=(
        "{person}'s favourite {category} is now {value}.",
        "As for a favourite {category}, {person} has settled on {value}.",
        "{person} said that the best {category} of all is {value}.",
        "When asked about a favourite {category}, {person} answered {value}.",
    ),
    questions=MappingProxyType(
        {
            "first": "What was the first favourite {category} that {person} named?",
            "latest": "What is the latest favourite {category} that {person} named?",
        }
    ),
    filler=(
        "It rained for most of the afternoon.",
        "The shop on the corner opened an hour late.",
        "Somebody had left the gate open again.",
        "A bus went past without stopping.",
        "The meeting was moved to the larger room.",
        "Nobody could find the key to the cupboard.",
        "The road by the river was closed for repairs.",
        "Two letters arrived, both for the neighbours.",
        "The kettle took a long time to boil.",
        "They talked about the weather for a while.",
        "The printer was out of paper.",
        "A light was still on upstairs.",
    ),
)
"""Sentences for real language models."""

WORDINGS: Mapping[str, Wording] = MappingProxyType({"english": ENGLISH, "plain": PLAIN})


@dataclass(frozen=True)
class Recall:
    """A family of recall tasks: any length, exact answers, answers anywhere in the text."""

    name: ClassVar[str] = "recall"
    metric: ClassVar[str] = "answer_match"

    chunks: int = 8
    questions: int = 1
    """Asked about as many different subjects."""
    keep: Keep | Literal["either"] = "latest"
    """Which mention of its subject a question asks for; either: drawn for every question."""
    updates: float = 0.5
    """Chance that a chunk earlier than the latest mention (later than the first) has one too."""
    mentions: int = 1
    """A chunk that mentions an asked subject does so up to this many times, values differing."""
    distractors: int = 4
    """Facts per chunk about subjects that are not asked."""
    filler: int = 4
    """Sentences per chunk that say nothing; needs a wording that has some."""
    wording: Literal["english", "plain"] = "english"
    """english: for real language models; plain: the few words that the demo's model knows."""

    def __post_init__(self) -> None:
        if self.chunks < 1 or self.questions < 1 or self.mentions < 1:
            raise UserError(
                f"recall tasks need chunks, questions and mentions, not {self.chunks},"
                f" {self.questions} and {self.mentions}",
                "set chunks, questions and mentions to 1 or more",
            )
        if self.keep not in ("latest", "first", "either"):
            raise UserError(f"keep is {self.keep!r}", "choose from latest, first, either")
        if not 0 <= self.updates <= 1 or self.distractors < 0 or self.filler < 0:
            raise UserError(
                f"updates {self.updates}, distractors {self.distractors} and filler {self.filler}"
                " are not all possible",
                "set updates between 0 and 1, distractors and filler to 0 or more",
            )
        self._check_wording()

    @property
    def words(self) -> Wording:
        """The sentences and the words in them."""
        return WORDINGS[self.wording]

    def _check_wording(self) -> None:
        if self.wording not in WORDINGS:
            raise UserError(
                f"there is no wording {self.wording!r}", f"choose from {', '.join(WORDINGS)}"
            )
        subjects = len(self.words.subjects)
        most = subjects - (self.distractors > 0)
        if self.questions > most:
            raise UserError(
                f"{self.questions} questions about {subjects} subjects leave none for distractors"
                if self.questions == subjects
                else f"{self.questions} questions are more than the {subjects} subjects",
                f"ask at most {most} questions, or use a wording with more people and categories",
            )
        values = min(len(set(values)) for values in self.words.values.values())
        if values <= self.mentions:
            raise UserError(
                f"{self.mentions} different mentions in a chunk need more than {values} values",
                f"set mentions to at most {values - 1}",
            )
        if self.filler and not self.words.filler:
            raise UserError(
                f"filler is {self.filler} but the wording has no filler sentences",
                "set filler to 0, or wording to english",
            )

    def size(self, split: Split) -> int | None:
        """Say that there is no end."""
        return None

    def longer(self, times: int) -> Recall:
        """Return the same family with so many times as many chunks."""
        return replace(self, chunks=self.chunks * times)

    def tasks(self, n: int, seed: int = 0, split: Split = "train", start: int = 0) -> list[Task]:
        """Make tasks `start` to `start + n - 1` of a split."""
        return [self.task(i, seed, split) for i in range(start, start + n)]

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Make one task; it depends on nothing but the settings and these three.

        A task's own text decides its split, by a hash: so no task of one split is ever a task of
        the other, whatever the seeds, even where a small wording makes texts repeat.
        """
        name = f"recall-{split}-{seed}-{index}-of-{self.chunks}-chunks"
        for attempt in range(_ATTEMPTS):
            rng = Random(derive("recall", seed, split, index, attempt))
            chunks, questions = self._story(rng)
            texts = (*chunks, *(q.text for q in questions))
            if split == ("train", "test")[derive("split", *texts) % 2]:
                return Task(name, chunks, questions, self.name)
        raise UserError(
            f"these settings allow too few different tasks for a {split} split",
            "set more chunks, questions or distractors",
        )

    def _story(self, rng: Random) -> tuple[tuple[str, ...], tuple[Question, ...]]:
        asked = rng.sample(self.words.subjects, self.questions)
        # A chunk is a list of (place, sentence), put in order at the end.
        story: list[list[tuple[float, str]]] = [[] for _ in range(self.chunks)]
        questions = tuple(self._plant(subject, story, rng) for subject in asked)
        others = [subject for subject in self.words.subjects if subject not in asked]
        near = [o for o in others if any(o[0] == s[0] or o[1] == s[1] for s in asked)] or others
        for chunk in story:
            for _ in range(self.distractors):
                # Half of them share the person or the category with a subject that is asked.
                subject = rng.choice(rng.choice((near, others)))
                value = rng.choice(self.words.values[subject[1]])
                chunk.append((rng.random(), self._fact(subject, value, rng)))
            for _ in range(self.filler):
                chunk.append((rng.random(), rng.choice(self.words.filler)))
        chunks = tuple(" ".join(text for _, text in sorted(chunk)) for chunk in story)
        return chunks, questions

    def _plant(
        self, subject: Subject, story: list[list[tuple[float, str]]], rng: Random
    ) -> Question:
        """Put a subject's mentions into the story and ask for the one that counts."""
        person, category = subject
        keep: Keep = rng.choice(("latest", "first")) if self.keep == "either" else self.keep
        evidence = rng.randrange(self.chunks)
        answer = rng.choice(self.words.values[category])
        stale = [value for value in self.words.values[category] if value != answer]
        # Only one side of the evidence is open to more mentions: so the evidence is uniform over
        # the chunks, and reading on is the same kind of step however long the story.
        side = range(evidence) if keep == "latest" else range(evidence + 1, self.chunks)
        for at in (evidence, *(i for i in side if rng.random() < self.updates)):
            values = rng.sample(stale, rng.randint(1, self.mentions))
            if at == evidence:
                values[-1 if keep == "latest" else 0] = answer
            places = sorted(rng.random() for _ in values)
            story[at] += [
                (place, self._fact(subject, value, rng))
                for place, value in zip(places, values, strict=True)
            ]
        text = self.words.questions[keep].format(person=person, category=category)
        return Question(text, (answer,), keep, (evidence,))

    def _fact(self, subject: Subject, value: str, rng: Random) -> str:
        person, category = subject
        template = rng.choice(self.words.facts)
        return template.format(person=person, category=category, value=value)

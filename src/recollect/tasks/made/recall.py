"""Recall: who chose what, over many chunks, where one mention of several counts.

A subject is a person and a category (Maria's fruit). Each question asks for the first or the
latest value of its subject; its other mentions do not count, and other subjects appear beside
it. Which subject is asked is drawn after the text, among subjects that follow one law: no rule that
does not read the question beats a guess. Made from a seed; nothing is downloaded. Knows nothing of
agents or models.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from random import Random
from typing import ClassVar, Literal

from recollect.errors import UserError
from recollect.seeds import derive
from recollect.tasks.made.characters import Characters
from recollect.tasks.made.tracks import Track, draw_presence, spread_values
from recollect.tasks.made.wordings import (
    ENGLISH,
    PLAIN,
    WORDINGS,
    Keep,
    Subject,
    Wording,
)
from recollect.types import Question, Task

__all__ = ["ENGLISH", "PLAIN", "WORDINGS", "Recall", "Wording"]

Split = Literal["train", "test"]
Story = list[list[tuple[float, str]]]
"""A chunk is a list of (place, sentence), put in order at the end."""

_ATTEMPTS = 256  # each draw falls into the wanted split with chance 1/2
_MOST_TRACKS = 64


@dataclass(frozen=True)
class Recall:
    """A family of recall tasks: any length, exact answers, answers anywhere in the text."""

    name: ClassVar[str] = "recall"
    metric: ClassVar[str] = "answer_match"

    chunks: int = 8
    questions: int = 1
    """Questions per task, each about a different subject."""
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
        """Return the same family with `times` as many chunks."""
        return replace(self, chunks=self.chunks * times)

    def crowded(self, times: int) -> Recall:
        """Return the same family with `times` as many distractors in a chunk."""
        return replace(self, distractors=self.distractors * times)

    def guesses(self, task: Task, question: Question | None = None) -> list[str]:
        """Return what a question of its kind can be answered with, or any question."""
        known = self.words.values.values()
        asked = question.answers[0] if question else None
        return [value for values in known if asked is None or asked in values for value in values]

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
        tracks, spare = self._tracks(rng)
        characters = Characters.draw(self.words, len(tracks), self.distractors > 0, rng)
        story: Story = [[] for _ in range(self.chunks)]
        for track, subject in zip(tracks, characters.asked, strict=True):
            self._plant(track, subject, characters, story, rng)
        others = [(c, characters.draw_other(rng)) for c, n in enumerate(spare) for _ in range(n)]
        for track in tracks:
            other = characters.draw_other(rng)
            others += [(c, other) for c in track.other]
        if self.distractors:
            self._fill(others, characters, story, rng)
        for chunk in story:
            for _ in range(self.filler):
                chunk.append((rng.random(), rng.choice(self.words.filler)))
        chunks = tuple(" ".join(text for _, text in sorted(chunk)) for chunk in story)
        drawn = rng.sample(range(len(tracks)), self.questions)
        return chunks, tuple(self._ask(tracks[i], characters.asked[i], characters) for i in drawn)

    def _tracks(self, rng: Random) -> tuple[list[Track], list[int]]:
        """Draw the tracks of a story, and how many more facts every chunk has room for."""
        asked = max(1, ceil(self.updates * self.questions), ceil(self.questions / self.chunks))
        facts = self.distractors + asked
        most = self._most_tracks if self.distractors else self.questions
        told = draw_presence(self.chunks, facts, self.updates, most, self.questions, rng)
        spare = [max(0, facts - len(chunk)) for chunk in told]
        places: dict[int, list[int]] = {}
        for c, chunk in enumerate(told):
            for number in chunk:
                places.setdefault(number, []).append(c)
        latest = {"latest": (True,), "first": (False,), "either": (True, False)}[self.keep]
        tracks = [
            Track(tuple(found), rng.choice(found), rng.choice(latest))
            for _, found in sorted(places.items())
        ]
        return tracks, spare

    @property
    def _most_tracks(self) -> int:
        alone = len(self.words.people) == 1
        # With one person a subject is a category, and half of these are for what is never asked.
        return max(self.questions, len(self.words.values) // 2 if alone else _MOST_TRACKS)

    def _plant(
        self, track: Track, subject: Subject, characters: Characters, story: Story, rng: Random
    ) -> None:
        """Put a subject's mentions into the story, so that the one that counts is its answer."""
        values = characters.values[subject[1]]
        most = min(self.mentions, len(values))
        chunks = track.asked
        found = spread_values(
            [rng.randint(1, most) for _ in chunks],
            chunks.index(track.evidence),
            characters.answers[subject],
            values,
            track.latest,
            rng,
        )
        for chunk, told in zip(chunks, found, strict=True):
            places = sorted(rng.random() for _ in told)
            for place, value in zip(places, told, strict=True):
                story[chunk].append((place, self._fact(subject, value, rng)))
                characters.told[value] += 1

    def _fill(
        self, others: list[tuple[int, Subject]], characters: Characters, story: Story, rng: Random
    ) -> None:
        """Tell what is never asked, each time with a value that is rare so far: the totals of all
        values come out alike."""
        rng.shuffle(others)
        for chunk, subject in others:
            for _ in range(rng.randint(1, self.mentions)):
                value = characters.rarest(subject[1], rng)
                story[chunk].append((rng.random(), self._fact(subject, value, rng)))
                characters.told[value] += 1

    def _ask(self, track: Track, subject: Subject, characters: Characters) -> Question:
        keep: Keep = "latest" if track.latest else "first"
        person, category = subject
        text = self.words.questions[keep].format(person=person, category=category)
        return Question(text, (characters.answers[subject],), keep, (track.evidence,))

    def _fact(self, subject: Subject, value: str, rng: Random) -> str:
        person, category = subject
        template = rng.choice(self.words.facts)
        return template.format(person=person, category=category, value=value)


SHORT_DIARY = Recall(chunks=3, keep="first", updates=0.9, distractors=2, filler=0, wording="plain")
"""Stories of three sentences a chunk, of which the first mention always counts."""
DIARY = replace(SHORT_DIARY, keep="either", distractors=4)
"""The stories of the demo: five sentences a chunk, and both rules."""

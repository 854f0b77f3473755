"""The people and values of a recall story. Knows nothing of chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from random import Random

from recollect.tasks.made.wordings import Subject, Wording

_FEW = 3
"""Fewer subjects than this share a category's values with nobody: they have all of them."""


@dataclass(frozen=True)
class Characters:
    """The people and the values of a story.

    Every value of a story is the answer of one subject that can be asked (of several, if there are
    more subjects than values): so every guess is right equally often. With a single person that is
    impossible; there a subject has all values of its category for itself.
    """

    asked: Sequence[Subject]
    others: Sequence[Subject]
    values: dict[str, tuple[str, ...]]
    """The values of a category that the story mentions."""
    answers: dict[Subject, str]
    told: Counter[str]
    """How often each value was mentioned so far."""

    @classmethod
    def draw(cls, words: Wording, count: int, with_others: bool, rng: Random) -> Characters:
        """Draw `count` subjects that can be asked, their answers, and some that never are."""
        asked = _draw_subjects(words, count, rng)
        used = list(dict.fromkeys(category for _, category in asked))
        values: dict[str, tuple[str, ...]] = {}
        answers: dict[Subject, str] = {}
        for category in used:
            members = [subject for subject in asked if subject[1] == category]
            known = words.values[category]
            size = len(members) if len(members) >= _FEW else len(known)
            values[category] = tuple(rng.sample(known, min(size, len(known))))
            # All of them equally often, in an order of their own.
            laps = ceil(len(members) / len(values[category]))
            drawn = [
                v for _ in range(laps) for v in rng.sample(values[category], len(values[category]))
            ]
            answers |= dict(zip(members, drawn, strict=False))
        others = _draw_others(words, asked, used, rng) if with_others else []
        for _, category in others:
            values.setdefault(category, words.values[category])
        return cls(asked, others, values, answers, Counter())

    def draw_other(self, rng: Random) -> Subject:
        """Draw a subject that is never asked."""
        return rng.choice(self.others) if self.others else ("", "")

    def rarest(self, category: str, rng: Random) -> str:
        """Return the least mentioned value of a category."""
        return min(self.values[category], key=lambda value: (self.told[value], rng.random()))


def _draw_subjects(words: Wording, count: int, rng: Random) -> list[Subject]:
    """Draw subjects in as few categories as their answers allow, of people that are in several."""
    if len(words.people) == 1:
        return [(words.people[0], c) for c in rng.sample(list(words.values), count)]
    room = min(len(values) for values in words.values.values())
    groups = min(len(words.values), max(ceil(count / room), 2 if count >= 2 * _FEW else 1))
    categories = rng.sample(list(words.values), groups)
    sizes = [count // groups + (i < count % groups) for i in range(groups)]
    known = rng.sample(words.people, min(len(words.people), max(sizes) + 2))
    return [
        (person, category)
        for category, size in zip(categories, sizes, strict=True)
        for person in rng.sample(known, size)
    ]


def _draw_others(
    words: Wording, asked: Sequence[Subject], used: Sequence[str], rng: Random
) -> list[Subject]:
    """Return subjects that are not asked: of the same people and categories, if there are any."""
    people = list(dict.fromkeys(person for person, _ in asked))
    near = [(p, c) for p in people for c in used if (p, c) not in asked]
    same = [(p, c) for p in words.people for c in used if (p, c) not in asked]
    return near or same or [subject for subject in words.subjects if subject not in asked]

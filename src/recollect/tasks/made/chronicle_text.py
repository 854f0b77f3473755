"""The pages of a chronicle: one generator for all of them, so that nothing marks the evidence.

A text is a table of small numbers, one row a statement; a page is written when it is asked for. So
millions of tokens take a few megabytes. Knows nothing of questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from recollect.seeds import derive
from recollect.tasks.base import Split
from recollect.tasks.files.lazy import Lazy
from recollect.tasks.made.chronicle_letters import Keepers, Letter, draw_keepers, draw_letters
from recollect.tasks.made.chronicle_places import Places, draw_places
from recollect.tasks.made.chronicle_plan import SHARES, TOWNS, Plan, page
from recollect.tasks.made.chronicle_words import (
    PARTS,
    SENTENCES,
    SHOPS,
    TITLES,
    date,
    first_names,
    surnames,
    things,
    towns,
)

FORMS = tuple(SENTENCES)
_ATTEMPTS = 100


@dataclass(frozen=True)
class Names:
    """What the numbers of a text are called."""

    people: tuple[str, ...]
    towns: tuple[str, ...]
    things: tuple[str, ...]

    @classmethod
    def draw(cls, plan: Plan, split: Split, rng: Random) -> Names:
        """Draw names of a split; no two people share a surname."""
        known = first_names(split)
        laps = -(-plan.people // len(known))
        first = [name for _ in range(laps) for name in rng.sample(known, len(known))]
        last = rng.sample(surnames(split), plan.people)
        people = tuple(f"{a} {b}" for a, b in zip(first, last, strict=False))
        return cls(
            people,
            tuple(rng.sample(towns(split), TOWNS)),
            tuple(rng.sample(things(split), plan.things)),
        )


@dataclass(frozen=True, eq=False)
class Pages(Lazy[str]):
    """The chunks of a text, each written when it is asked for."""

    names: Names
    rows: np.ndarray
    """int16, one row a statement: its form, two people or a thing, two towns or a day."""
    each: int
    """Statements of a page."""
    key: int

    def __len__(self) -> int:
        return len(self.rows) // self.each

    def item(self, place: int) -> str:
        """Write a page."""
        rng = Random(derive("chronicle", "page", self.key, place))
        rows = self.rows[place * self.each : (place + 1) * self.each].tolist()
        told = " ".join(self._sentence(rng, *row) for row in rows)
        return f"{rng.choice(TITLES)}\n{told}"

    def _sentence(self, rng: Random, form: int, a: int, b: int, x: int, y: int) -> str:
        name, names = FORMS[form], self.names
        template = rng.choice(SENTENCES[name])
        if name == "filler":
            return template.format(p=rng.choice(PARTS), q=rng.choice(SHOPS))
        if name == "letter":
            return template.format(a=names.people[a], b=names.people[b], d=date(x))
        if name in ("handover", "in vain"):
            return template.format(a=names.people[a], t=names.things[b])
        return template.format(
            a=names.people[a], b=names.people[b], x=names.towns[x], y=names.towns[y]
        )


@dataclass(frozen=True)
class Story:
    """A text and what is true at its end. Numbers of statements are places in the whole text."""

    pages: Pages
    towns: list[int]
    """The last town of every person."""
    towns_rest_on: list[tuple[int, ...]]
    keepers: list[int]
    """The last keeper of every thing."""
    keepers_rest_on: list[int]

    def letters(self, person: int, sent: bool) -> dict[int, list[int]]:
        """Return the days on which a person sent or received a letter, and what tells of each."""
        rows = self.pages.rows
        own = (rows[:, 0] == FORMS.index("letter")) & (rows[:, 1 if sent else 2] == person)
        days: dict[int, list[int]] = {}
        for slot in np.flatnonzero(own).tolist():
            days.setdefault(int(rows[slot, 3]), []).append(slot)
        return days


def draw_story(plan: Plan, split: Split, *key: str | int) -> Story:
    """Draw a text; the same key gives the same one."""
    for attempt in range(_ATTEMPTS):
        rng = Random(derive("chronicle", *key, attempt))
        names = Names.draw(plan, split, rng)
        slots = _slots(plan, rng)
        places = draw_places(plan.people, TOWNS, len(slots["place"]), rng)
        rest = [tuple(slots["place"][i] for i in own) for own in places.evidence]
        opened = [min(own) for own in rest]
        keepers = draw_keepers(plan.things, places.finals, slots["thing"], opened, rng)
        if keepers is None:
            continue
        letters = draw_letters(plan.people, plan.most, len(slots["letter"]), rng)
        rows = _rows(slots, places, letters, keepers)
        pages = Pages(names, rows, plan.sentences, rng.getrandbits(63))
        named = [slots["thing"][i] for i in keepers.evidence]
        return Story(pages, places.finals, rest, keepers.keepers, named)
    raise RuntimeError("no story could be drawn")


def _slots(plan: Plan, rng: Random) -> dict[str, list[int]]:
    """Say what every statement is about, in a new order on every page."""
    found: dict[str, list[int]] = {about: [] for about in SHARES}
    each = page(plan.sentences)
    for start in range(0, plan.chunks * plan.sentences, plan.sentences):
        for slot, about in enumerate(rng.sample(each, len(each)), start):
            found[about].append(slot)
    return found


def _rows(
    slots: dict[str, list[int]], places: Places, letters: Sequence[Letter], keepers: Keepers
) -> np.ndarray:
    rows = np.zeros((sum(map(len, slots.values())), 5), np.int16)
    for slot, m in zip(slots["place"], places.moves, strict=True):
        rows[slot] = (FORMS.index(m.form), m.a, m.b, m.x, m.y)
    for slot, letter in zip(slots["letter"], letters, strict=True):
        rows[slot] = (FORMS.index("letter"), letter.sender, letter.receiver, letter.day, 0)
    for slot, told in zip(slots["thing"], keepers.told, strict=True):
        rows[slot] = (FORMS.index(told.form), told.person, told.thing, 0, 0)
    rows[slots["filler"], 0] = FORMS.index("filler")
    return rows

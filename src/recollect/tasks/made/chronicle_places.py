"""Where the people of a chronicle are: moves, refused offers, undone moves and trades.

Every person has one last change, equally likely anywhere in the text; after it come refused offers
alone. Which town it leads to is dealt evenly. Knows nothing of words or questions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Literal

Form = Literal["set", "refused", "cancel", "exchange"]
FORMS: tuple[Form, ...] = ("set", "refused", "exchange", "cancel")


@dataclass(frozen=True)
class Move:
    """A statement about where one or two people are; `x` and `y` are homes, then towns."""

    form: Form
    a: int
    b: int = -1
    x: int = -1
    y: int = -1


@dataclass
class Places:
    """The statements in order, the last town of every person, and the statements it rests on."""

    moves: list[Move]
    finals: list[int]
    evidence: list[tuple[int, ...]]


@dataclass
class _State:
    """Homes while a story is drawn: a home is a number, and gets its town at the end."""

    homes: int = 0
    now: dict[int, int] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)
    """The home before the latest move, where that can be undone."""
    apart: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Homes that must not be in the same town."""
    owners: list[int] = field(default_factory=list)
    forms: list[Form] = field(default_factory=list)

    def new(self, person: int, form: Form) -> int:
        self.homes += 1
        self.owners.append(person)
        self.forms.append(form)
        home = self.homes - 1
        if person in self.now:
            self.part(home, self.now[person])
        return home

    def part(self, one: int, other: int) -> None:
        self.apart[one].add(other)
        self.apart[other].add(one)

    def move(self, form: Form, a: int, b: int = -1) -> Move:
        if form == "refused":
            return Move(form, a, x=self.new(a, form))
        if form == "cancel":
            self.now[a] = self.before.pop(a)
            return Move(form, a)
        if form == "set":
            home = self.new(a, form)
            self.before.pop(a, None)
            if a in self.now:
                self.before[a] = self.now[a]
            self.now[a] = home
            return Move(form, a, x=home)
        for one in (a, b):
            self.before.pop(one, None)
            if one not in self.now:
                self.now[one] = self.new(one, form)
        x, y = self.now[a], self.now[b]
        self.part(x, y)
        self.now[a], self.now[b] = y, x
        return Move(form, a, b, x, y)


def draw_places(people: int, towns: int, slots: int, rng: Random) -> Places:
    """Draw as many statements as there are slots; everybody's last town is dealt evenly."""
    fixed, evidence = _last_changes(people, slots, rng)
    opened = [min(own) for own in evidence]
    state = _State()
    deck: list[int] = []
    moves = []
    for slot in range(slots):
        if slot in fixed:
            moves.append(state.move(*fixed[slot]))
            continue
        if not deck:
            deck = rng.sample(range(people), people)
        person = deck.pop()
        moves.append(state.move(*_earlier(person, slot, opened, state, rng)))
    finals = _deal(people, towns, state, rng)
    towns_of = _towns(finals, towns, state, rng)
    told = [Move(m.form, m.a, m.b, *(towns_of[h] if h >= 0 else -1 for h in (m.x, m.y)))
            for m in moves]  # fmt: skip
    return Places(told, finals, evidence)


def _last_changes(
    people: int, slots: int, rng: Random
) -> tuple[dict[int, tuple[Form, int, int]], list[tuple[int, ...]]]:
    """Place everybody's last change: a move, a trade, or a move that is undone.

    An undone move needs three statements, drawn like any others: so the evidence of all people
    together is equally likely everywhere.
    """
    order = rng.sample(range(people), people)
    undone, moved = order[: people // 4], order[people // 4 :]
    count = 3 * len(undone) + len(moved)
    edges = [i * slots // count for i in range(count + 1)]
    drawn = [rng.randrange(a, b) for a, b in pairwise(edges)]
    rng.shuffle(drawn)
    fixed: dict[int, tuple[Form, int, int]] = {}
    evidence: list[tuple[int, ...]] = [()] * people
    forms: tuple[Form, ...] = ("set", "set", "cancel")
    for person in undone:
        evidence[person] = tuple(sorted(drawn.pop() for _ in forms))
        fixed |= {
            slot: (form, person, -1) for slot, form in zip(evidence[person], forms, strict=True)
        }
    for person in moved:
        evidence[person] = (drawn.pop(),)
    opened = [min(own) for own in evidence]
    for place, person in enumerate(moved):
        later = [p for p in range(people) if opened[p] > opened[person]]
        traded = place % 3 == 0 and later  # with somebody who will move again
        fixed[opened[person]] = (
            ("exchange", person, rng.choice(later)) if traded else ("set", person, -1)
        )
    return fixed, evidence


def _earlier(
    person: int, slot: int, opened: Sequence[int], state: _State, rng: Random
) -> tuple[Form, int, int]:
    """Draw a statement that is not a last change; after that nothing has an effect."""
    if slot > opened[person]:
        return ("refused", person, -1)
    form: Form = rng.choices(FORMS, (7, 7, 3, 3))[0]
    if form == "exchange":
        others = [p for p, at in enumerate(opened) if at > slot and p != person]
        return (form, person, rng.choice(others)) if others else ("refused", person, -1)
    if form == "cancel" and person not in state.before:
        form = "refused"
    return (form, person, -1)


def _deal(people: int, towns: int, state: _State, rng: Random) -> list[int]:
    """Deal the last towns evenly, to homes that may be in the same one."""
    homes = [state.now[person] for person in range(people)]
    dealt = [i % towns for i in range(people)]
    rng.shuffle(dealt)
    at = {home: person for person, home in enumerate(homes)}
    for _ in range(8):
        for person, home in enumerate(homes):
            near = {dealt[at[other]] for other in state.apart[home] if other in at}
            if dealt[person] in near:
                other = rng.randrange(people)
                dealt[person], dealt[other] = dealt[other], dealt[person]
    return dealt


def _towns(finals: Sequence[int], towns: int, state: _State, rng: Random) -> list[int]:
    """Choose the town of every home: a person's towns equally often, and those of every form."""
    found = [-1] * state.homes
    used: list[Counter[int]] = [Counter({final: 1}) for final in finals]
    totals: dict[Form, Counter[int]] = defaultdict(Counter)
    for person, final in enumerate(finals):
        found[state.now[person]] = final
    for home in range(state.homes):
        owner, form = state.owners[home], state.forms[home]
        if found[home] < 0:
            near = {found[other] for other in state.apart[home]}
            free = [town for town in range(towns) if town not in near] or list(range(towns))
            found[home] = min(free, key=lambda t: (used[owner][t], totals[form][t], rng.random()))
            used[owner][found[home]] += 1
        totals[form][found[home]] += 1
    return found

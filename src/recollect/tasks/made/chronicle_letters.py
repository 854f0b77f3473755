"""Who wrote to whom in a chronicle, on which day; and who has which thing.

A letter may be mentioned twice. The order of letters means nothing: what counts is their days.
A thing's last keeper is named before the first statement that the keeper's last town rests on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from recollect.tasks.made.chronicle_words import DAYS

_DRAWS = 20


@dataclass(frozen=True)
class Letter:
    """One letter."""

    sender: int
    receiver: int
    day: int


def draw_letters(people: int, most: int, slots: int, rng: Random) -> list[Letter]:
    """Draw what every slot tells of; people send and receive 0 to `most`, all equally often."""
    known = rng.sample(range(most + 1), most + 1)
    counts = [known[i % len(known)] for i in range(people)]
    senders, receivers = ([p for p, n in _dealt(counts, rng) for _ in range(n)] for _ in range(2))
    rng.shuffle(receivers)
    for i, sender in enumerate(senders):
        while sender == receivers[i]:  # nobody writes to themselves
            other = rng.randrange(len(receivers))
            if receivers[other] != sender and senders[other] != receivers[i]:
                receivers[i], receivers[other] = receivers[other], receivers[i]
    taken: set[tuple[str, int, int]] = set()
    letters = []
    for sender, receiver in zip(senders, receivers, strict=True):
        day = rng.randrange(DAYS)
        while ("from", sender, day) in taken or ("to", receiver, day) in taken:
            day = rng.randrange(DAYS)
        taken |= {("from", sender, day), ("to", receiver, day)}
        letters.append(Letter(sender, receiver, day))
    told = list(letters[:slots])
    while letters and len(told) < slots:
        told += rng.sample(letters, min(len(letters), slots - len(told)))
    rng.shuffle(told)
    return told


def _dealt(counts: Sequence[int], rng: Random) -> list[tuple[int, int]]:
    return list(enumerate(rng.sample(counts, len(counts))))


@dataclass(frozen=True)
class Keeping:
    """A statement about a thing: it was handed to somebody, or somebody asked in vain."""

    form: str
    person: int
    thing: int


@dataclass(frozen=True)
class Keepers:
    """The statements in order, every thing's last keeper, and the statement that names it."""

    told: list[Keeping]
    keepers: list[int]
    evidence: list[int]


def draw_keepers(
    things: int, finals: Sequence[int], slots: Sequence[int], opened: Sequence[int], rng: Random
) -> Keepers | None:
    """Draw what every slot tells of; keepers are spread evenly over the towns.

    None where too many people have their last town before any thing is handed over.

    `slots` and `opened` are places in the whole text: of these statements, and of the first one
    that a person's last town rests on.
    """
    room = [sum(slot < first for slot in slots) for first in opened]
    for _ in range(_DRAWS):
        keepers = _choose(things, finals, room, rng)
        evidence = _place(keepers, room, rng)
        if evidence:
            break
    else:
        return None
    people = len(finals)
    deck: list[int] = []
    named = {slot: thing for thing, slot in enumerate(evidence)}
    told = []
    for slot in range(len(slots)):
        if slot in named:
            told.append(Keeping("handover", keepers[named[slot]], named[slot]))
            continue
        if not deck:
            deck = rng.sample(range(things), things)
        thing = deck.pop()
        form = "handover" if slot < evidence[thing] and rng.random() < 0.5 else "in vain"
        told.append(Keeping(form, rng.randrange(people), thing))
    return Keepers(told, keepers, evidence)


def _choose(things: int, finals: Sequence[int], room: Sequence[int], rng: Random) -> list[int]:
    """Choose equally many keepers of every town: the one of two with more room before their own
    evidence. Then the evidence of both steps together is equally likely everywhere."""
    chosen: list[int] = []
    for town in sorted(set(finals)):
        own = [person for person, final in enumerate(finals) if final == town]
        rng.shuffle(own)
        for _ in range(things // len(set(finals))):
            pair = own.pop(), own.pop()
            chosen.append(max(pair, key=lambda person: room[person]))
    return rng.sample(chosen, len(chosen))


def _place(keepers: Sequence[int], room: Sequence[int], rng: Random) -> list[int]:
    """Draw a slot for every last handover, each before its keeper's own; or return nothing."""
    taken: set[int] = set()
    found = [-1] * len(keepers)
    for thing in sorted(range(len(keepers)), key=lambda t: room[keepers[t]]):
        free = [slot for slot in range(room[keepers[thing]]) if slot not in taken]
        if not free:
            return []
        found[thing] = rng.choice(free)
        taken.add(found[thing])
    return found

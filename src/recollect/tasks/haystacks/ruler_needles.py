"""RULER's needles in a haystack (niah) and chains of variables (vt), as published, own wording.

Says what is hidden, what is asked and in which haystack; knows nothing of lengths or files.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from types import MappingProxyType
from typing import Literal

from recollect.tasks.haystacks.haystack import Listing
from recollect.tasks.haystacks.vocabulary import ADJECTIVES, NOUNS

Hay = Literal["noise", "essay", "needles"]
Kind = Literal["word", "number", "uuid"]


@dataclass(frozen=True)
class Niah:
    """One published configuration: what keys and values are, and how many of them."""

    hay: Hay
    key: Kind = "word"
    value: Kind = "number"
    keys: int = 1
    """Needles with different keys, those that are not asked included."""
    values: int = 1
    """Needles with the same key."""
    queries: int = 1


@dataclass(frozen=True)
class Chain:
    """Variables that are set to one another: the first to a value, each other to the one before."""

    hay: Hay = "noise"
    hops: int = 4


NEEDLES: Mapping[str, Niah] = MappingProxyType(
    {
        "niah_single_1": Niah("noise"),
        "niah_single_2": Niah("essay"),
        "niah_single_3": Niah("essay", value="uuid"),
        "niah_multikey_1": Niah("essay", keys=4),
        "niah_multikey_2": Niah("needles"),
        "niah_multikey_3": Niah("needles", key="uuid", value="uuid"),
        "niah_multivalue": Niah("essay", values=4),
        "niah_multiquery": Niah("essay", keys=4, queries=4),
    }
)


@dataclass(frozen=True)
class Hidden:
    """Sentences to hide, which of them the answer needs, and the question."""

    sentences: tuple[str, ...]
    wanted: tuple[int, ...]
    question: str
    answers: tuple[str, ...]
    ordered: bool = False
    """Whether the sentences must keep this order."""


def hide_needles(niah: Niah, rng: Random) -> Hidden:
    """Draw keys and values, and ask for those of the first keys."""
    keys = _draw(niah.key, niah.keys, rng)
    values = _draw(niah.value, niah.keys * niah.values, rng)
    owners = [key for key in keys for _ in range(niah.values)]
    needles = [_needle(niah, *pair) for pair in zip(owners, values, strict=True)]
    asked = keys[: niah.queries]
    wanted = tuple(i for i, key in enumerate(owners) if key in asked)
    return Hidden(tuple(needles), wanted, _question(niah, asked), tuple(values[i] for i in wanted))


def hide_chain(chain: Chain, rng: Random) -> Hidden:
    """Draw names and a value, and ask for every name that has it."""
    names: list[str] = []
    while len(names) <= chain.hops:
        name = "".join(rng.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=5))
        names += [] if name in names else [name]
    value = str(rng.randint(10000, 99999))
    sentences = [f"Let {names[0]} be {value}."]
    sentences += [f"Let {name} be the same as {known}." for known, name in pairwise(names)]
    question = (
        f"The text lets some names stand for values. Which names have the value {value}, directly"
        f" or because they are the same as another? There are {len(names)} of them: give them all,"
        " separated by commas."
    )
    return Hidden(tuple(sentences), tuple(range(len(names))), question, tuple(names), True)


def needle_hay(niah: Niah, seed: int, keys: tuple[str, ...]) -> Listing:
    """Return needles without end, all with different keys that are none of these."""

    def make(index: int) -> str:
        return _needle(niah, _key(niah.key, seed, index, keys), _value(niah.value, seed, index))

    return Listing.measured(make)


def key_in(sentence: str) -> str:
    """Return the key that a needle is about."""
    return sentence.split(" for ", 1)[1].split(" is: ", 1)[0]


def _needle(niah: Niah, key: str, value: str) -> str:
    return f"A secret {niah.value} for {key} is: {value}."


def _question(niah: Niah, keys: list[str]) -> str:
    names = keys[0] if len(keys) == 1 else f"{', '.join(keys[:-1])} and {keys[-1]}"
    if niah.values * len(keys) == 1:
        return (
            f"What is the secret {niah.value} for {names} that the text mentions?"
            f" Give the {niah.value} only."
        )
    return (
        f"What are all the secret {niah.value}s for {names} that the text mentions?"
        f" There are {niah.values * len(keys)} of them: give them all, separated by commas."
    )


def _draw(kind: Kind, n: int, rng: Random) -> list[str]:
    """Draw different keys or values."""
    drawn: dict[str, None] = {}
    while len(drawn) < n:
        if kind == "word":
            drawn[f"{rng.choice(ADJECTIVES)}-{rng.choice(NOUNS)}"] = None
        elif kind == "number":
            drawn[str(rng.randint(1_000_000, 9_999_999))] = None
        else:
            drawn[_uuid(rng.getrandbits(128))] = None
    return list(drawn)


def _key(kind: Kind, seed: int, index: int, taken: tuple[str, ...]) -> str:
    """Return the index-th of many different keys."""
    if kind == "uuid":
        return _uuid(_mix(seed, "key", index))
    # Steps of a size without a common divisor visit every pair once; after that come triples.
    pairs = len(ADJECTIVES) * len(NOUNS)
    lap, place = divmod(index, pairs)
    step = 2 * (seed % pairs) + 1
    while math.gcd(step, pairs) > 1:
        step += 2
    adjective, noun = divmod((seed + place * step) % pairs, len(NOUNS))
    first = f"{ADJECTIVES[lap - 1]}-" if lap else ""
    key = f"{first}{ADJECTIVES[adjective]}-{NOUNS[noun]}"
    return f"other-{key}" if key in taken else key


def _value(kind: Kind, seed: int, index: int) -> str:
    mixed = _mix(seed, "value", index)
    return _uuid(mixed) if kind == "uuid" else str(1_000_000 + mixed % 9_000_000)


def _mix(seed: int, use: str, index: int) -> int:
    digest = hashlib.blake2b(f"{seed} {use} {index}".encode(), digest_size=16).digest()
    return int.from_bytes(digest, "little")


def _uuid(bits: int) -> str:
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

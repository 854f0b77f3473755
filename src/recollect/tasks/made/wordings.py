"""The words of recall stories: people, values by category, and the sentences around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Keep = Literal["latest", "first"]
Subject = tuple[str, str]
"""A person and a category."""


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

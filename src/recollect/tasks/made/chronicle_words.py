"""The words of a chronicle: names of people, towns and things, and the sentences around them.

Every name belongs to one split, by a hash of its parts: nothing that is named in a test text is
named in a training text. Sentences of all forms share their words, and none uses the words of a
question, so that a search for the question is led by names alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from recollect.seeds import derive
from recollect.tasks.base import Split

FIRST = (
    *("Ada", "Agnes", "Albin", "Alma", "Anton", "Astrid", "August", "Bela", "Benno", "Berit"),
    *("Birgit", "Bruno", "Carla", "Casper", "Cecily", "Clara", "Conrad", "Cora", "Dagmar", "Dario"),
    *("Delia", "Dora", "Edgar", "Edith", "Egon", "Elsa", "Emil", "Enno", "Erna", "Esther"),
    *("Eva", "Felix", "Fiona", "Flora", "Frida", "Georg", "Gerda", "Gilda", "Greta", "Gustav"),
    *("Hanna", "Harald", "Hedda", "Hektor", "Helga", "Henrik", "Hilda", "Hugo", "Ida", "Ilse"),
    *("Ines", "Ingo", "Irma", "Isak", "Ivo", "Jakob", "Joel", "Johan", "Josef", "Judith"),
    *("Julius", "Karin", "Karl", "Klara", "Knut", "Lena", "Leon", "Linus", "Lotte", "Luisa"),
    *("Magda", "Malte", "Marta", "Matilda", "Max", "Mina", "Moritz", "Nora", "Odile", "Olaf"),
    *("Oskar", "Otto", "Paula", "Petra", "Rolf", "Rosa", "Ruth", "Selma", "Sigrid", "Simon"),
    *("Sofia", "Stella", "Sven", "Thea", "Theo", "Tilda", "Ulla", "Vera", "Viktor", "Wilma"),
)
_SURNAMES = (
    (
        *("Alder", "Ash", "Barn", "Birch", "Black", "Brand", "Clay", "Cole", "Crow", "Dale"),
        *("Elm", "Fair", "Fern", "Finch", "Fox", "Gold", "Green", "Hart", "Hazel", "Hawk"),
        *("Kirk", "Lamb", "March", "Moor", "North", "Oak", "Reed", "Rose", "Snow", "White"),
    ),
    ("berg", "croft", "field", "gren", "land", "man", "son", "stone", "ward", "wood"),
)
_TOWNS = (
    (
        *("Aber", "Bel", "Bram", "Cal", "Carn", "Dun", "Ever", "Fal", "Glen", "Har"),
        *("Inver", "Kel", "Lang", "Lin", "Mel", "Nether", "Over", "Pen", "Rav", "Sel"),
    ),
    ("bridge", "bury", "by", "combe", "dale", "ham", "mere", "mouth", "port", "wick"),
)
_THINGS = (
    (
        *("amber", "brass", "carved", "cedar", "copper", "crystal", "gilded", "ivory", "jade"),
        *("lacquered", "leather", "marble", "painted", "pewter", "silver", "velvet"),
    ),
    (
        *("bell", "bowl", "box", "candlestick", "chest", "clock", "compass", "crown", "fan"),
        *("globe", "goblet", "harp", "lantern", "mask", "mirror", "ring", "shield", "sword"),
    ),
)
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
DAYS = 12 * 28
"""Days that letters are dated with: the first 28 of every month."""


def _half(what: str, split: Split, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a split: half of them, in the order of their hashes."""
    ordered = sorted(words, key=lambda word: derive("chronicle", what, word))
    return tuple(sorted(ordered[split == "test" :: 2]))


@lru_cache
def first_names(split: Split) -> tuple[str, ...]:
    """Return the first names of a split."""
    return _half("first", split, FIRST)


@lru_cache
def surnames(split: Split) -> tuple[str, ...]:
    """Return the surnames of a split."""
    return _half("surname", split, _joined(_SURNAMES))


@lru_cache
def towns(split: Split) -> tuple[str, ...]:
    """Return the towns of a split: the values of a chronicle."""
    return _half("town", split, _joined(_TOWNS))


@lru_cache
def things(split: Split) -> tuple[str, ...]:
    """Return what can be kept, of a split."""
    return _half("thing", split, tuple(f"{a} {b}" for a in _THINGS[0] for b in _THINGS[1]))


def _joined(parts: tuple[tuple[str, ...], tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(a + b for a in parts[0] for b in parts[1])


def date(day: int) -> str:
    """Write a day of the year."""
    month, at = divmod(day, 28)
    return f"{at + 1} {MONTHS[month]}"


SENTENCES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "set": (
            "{a} has moved to {x}.",
            "{a} has settled in {x}, with every last chair.",
            "A cart came for {a}. It went to {x} and left nothing behind.",
            "There is a house for {a}. It is in {x}, and paid for.",
            "{a} has a new home. It is in {x}.",
            "{a} packed up. The cart has gone to {x}.",
        ),
        "refused": (
            "{a} was offered a house. It is in {x}, and others have it.",
            "{a} looked at rooms in {x}, but did not take them.",
            "It is false that {a} has moved to {x}.",
            "{a} had a plan. It was a home in {x}, and is dropped.",
            "A cart came for {a}. It went back to {x} as empty as it came.",
            "{a} packed nothing. The cart to {x} was sent away.",
        ),
        "cancel": (
            "{a} has undone the latest move and is back in the home before it.",
            "The latest move of {a} fell through: back to the home before it.",
            "{a} gave up the new house. The one before it is home again.",
            "The new house came to nothing. {a} is in the one before it again.",
        ),
        "exchange": (
            "{a} of {x} and {b} of {y} have traded homes.",
            "{a}, so far in {x}, and {b}, so far in {y}, have traded places.",
            "{a} gave up the house in {x} for that of {b} in {y}, who took it.",
            "{b} leaves {y} for the home of {a} in {x}; the two have traded.",
        ),
        "handover": (
            "The {t} was handed to {a}.",
            "{a} has taken charge of the {t}.",
            "From here on the {t} is with {a}.",
            "The {t} went to {a}, for good care.",
        ),
        "in vain": (
            "{a} asked for the {t}, in vain.",
            "{a} did not get the {t}.",
            "The {t} was nearly handed to {a}, but it was not to be.",
            "{a} was refused the {t}.",
        ),
        "letter": (
            "On {d} {a} wrote to {b}.",
            "{b} was written to by {a} on {d}.",
            "A note from {a} reached {b} on {d}.",
            "It was on {d} that {b} heard from {a} by post.",
            "By the post of {d} {b} had a few lines from {a}.",
            "The book says that {a} wrote to {b} on {d}.",
        ),
        "filler": (
            "It rained for most of the {p}.",
            "The {q} stayed shut for the whole {p}.",
            "Somebody had left the gate of the {q} open again.",
            "There was a queue at the {q} in the {p}.",
            "Nobody could find the key to the {q}.",
            "The bells rang twice in the {p}.",
            "A dog slept on the steps of the {q}.",
            "They spoke of little but the weather that {p}.",
        ),
    }
)
"""By form. The same person or thing is named in the same words everywhere."""
PARTS = ("morning", "afternoon", "evening", "week", "night", "holiday")
SHOPS = ("mill", "bakery", "chapel", "inn", "school", "market", "library", "smithy", "dairy")
TITLES = (
    *("From the town book", "Notes of the clerk", "Talk of the market", "Heard at the inn"),
    *("A page of the chronicle", "What the carrier said", "From the register", "Odds and ends"),
    *("Copied from the ledger", "Said at the well", "From the curate's diary", "A loose leaf"),
)
QUESTIONS: Mapping[str, str] = MappingProxyType(
    {
        "place": "Where does {a} live now?",
        "received": "On how many different days did {a} receive a letter?",
        "sent": "On how many different days did {a} send a letter?",
        "kept": "Where does the keeper of the {t} live now?",
    }
)

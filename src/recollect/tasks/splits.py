"""Items that exist once, dealt to a training and a test split, and asked for by number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import TypeVar

from recollect.errors import UserError
from recollect.seeds import derive
from recollect.tasks.base import Split

Item = TypeVar("Item")
_TRAINING = re.compile(r"(?<![a-z])train(?:ing)?(?![a-z])", re.IGNORECASE)
_HELD_OUT = re.compile(
    r"(?<![a-z])(?:dev|val|valid|validation|test|eval|evaluation)(?![a-z])", re.IGNORECASE
)


def split_of_file(name: str) -> Split:
    """Return the split that a file's name says: training only where it says that and no other."""
    return "train" if _TRAINING.search(name) and not _HELD_OUT.search(name) else "test"


def deal(names: Sequence[str], train_fraction: float) -> dict[Split, list[int]]:
    """Deal places to the splits by a hash of their names, so that a part keeps to the whole's."""
    if not 0 <= train_fraction <= 1:
        raise UserError(f"train_fraction is {train_fraction}", "set it between 0 and 1")
    parts: dict[Split, list[int]] = {"train": [], "test": []}
    for place, name in enumerate(names):
        trained = derive("split", name) % 10_000 < 10_000 * train_fraction
        parts["train" if trained else "test"].append(place)
    if 0 < train_fraction < 1 and len(names) > 1:  # few names may all fall to one side
        ordered = sorted(
            range(len(names)), key=lambda place: derive("split", names[place]) % 10_000
        )
        if not parts["train"]:
            parts = {"train": ordered[:1], "test": sorted(ordered[1:])}
        elif not parts["test"]:
            parts = {"train": sorted(ordered[:-1]), "test": ordered[-1:]}
    return parts


def pick(items: Sequence[Item], index: int, seed: int, split: Split, name: str, fix: str) -> Item:
    """Return the index-th item of a split.

    Training goes round, in an order that the seed draws anew every time. Held-out items come only
    once and in one order whatever the seed, so that seeds and lengths can be compared in pairs.
    """
    lap, place = divmod(index, max(1, len(items)))
    if not items or (lap and split == "test"):
        raise UserError(f"there are {len(items)} {split} tasks, not {index + 1}", fix)
    order = list(range(len(items)))
    key = (seed, lap) if split == "train" else ("held out",)
    Random(derive(name, split, *key)).shuffle(order)
    return items[order[place]]

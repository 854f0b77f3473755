"""Forks: places in finished episodes from which their rest is run again.

An agent is a function of what its models say. Told again what they said in the first contexts of an
episode, it stands where it stood then, with the same memory, whatever kind of memory that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recollect.errors import UserError
from recollect.seeds import Key, derive
from recollect.types import Context, Episode


@dataclass(frozen=True)
class Fork:
    """The moment before an episode opened one of its contexts."""

    episode: Episode
    at: int
    """The number of that context; those before it are told again."""

    @property
    def told(self) -> list[Context]:
        """What was said until then."""
        return self.episode.contexts[: self.at]


def find_places(group: Sequence[Episode]) -> list[Fork]:
    """Find all places: before a model that learns speaks, but not before anything was said.

    From there, all siblings went on anyway.
    """
    return [
        Fork(episode, at)
        for episode in group
        if episode.ok
        for at, context in enumerate(episode.contexts)
        if at and context.trainable and context.turns
    ]


def choose_forks(group: Sequence[Episode], count: int, key: Key) -> list[Fork]:
    """Draw up to `count` places in the episodes of one task, each as likely as any other.

    What was said before must be known by its tokens.
    """
    places = find_places(group)
    if any(not context.exact for fork in places for context in fork.told):
        raise UserError(
            "episodes cannot be run again from the middle, because a fixed model tells no tokens",
            "set --local.n 0, or serve that model where tokens are told",
        )
    rng = np.random.default_rng(derive(*key, "forks"))
    drawn = rng.choice(len(places), min(count, len(places)), replace=False)
    return [places[i] for i in sorted(drawn.tolist())]

"""Forks: places in finished episodes from which their rest is run again.

An agent is a function of what its models say. When the replies of an episode's first contexts are
replayed, the agent is where it was then, with the same memory, whatever kind of memory that is.
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
    """The number of that context; earlier ones are replayed."""

    @property
    def replayed(self) -> list[Context]:
        """What was said until then."""
        return self.episode.contexts[: self.at]


def find_places(group: Sequence[Episode]) -> list[Fork]:
    """Find all places: before a model that learns speaks, but not before anything was said.

    All siblings continued from there anyway.
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
    if any(not context.exact for fork in places for context in fork.replayed):
        raise UserError(
            "cannot run episodes again from the middle: a fixed model returns no token ids",
            "set --local.n 0, or serve that model from a server that returns token ids",
        )
    rng = np.random.default_rng(derive(*key, "forks"))
    drawn = rng.choice(len(places), min(count, len(places)), replace=False)
    return [places[i] for i in sorted(drawn.tolist())]

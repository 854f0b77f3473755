"""Shaping: what an episode pays, beside its reward, before it is compared with its siblings.

Pure functions. A charge is one number per episode, and lowers all of its rewards alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recollect.types import Episode


def overlong(tokens: int, limit: int, margin: int) -> float:
    """Charge a reply for coming near its limit (DAPO's soft overlong punishment).

    0 up to limit - margin tokens, (tokens - (limit - margin)) / margin up to the limit, then 1.
    """
    return min(max((tokens - (limit - margin)) / margin, 0.0), 1.0)


def overlong_charge(episode: Episode, limit: int, margin: int) -> float:
    """Average the charge over the replies of the model that learns."""
    turns = [turn for c in episode.contexts if c.trainable for turn in c.turns]
    own = [overlong(len(turn.token_ids), limit, margin) for turn in turns]
    return sum(own) / len(own) if own else 0.0


def charged(
    groups: Sequence[Sequence[Episode]], charges: Sequence[Sequence[float]]
) -> list[list[Episode]]:
    """Return the episodes with their rewards, and their contexts' own ones, lowered."""
    return [
        [_charged(episode, charge) for episode, charge in zip(group, own, strict=True)]
        for group, own in zip(groups, charges, strict=True)
    ]


def _charged(episode: Episode, charge: float) -> Episode:
    lowered = lambda reward: None if reward is None else reward - charge  # noqa: E731
    contexts = [replace(context, reward=lowered(context.reward)) for context in episode.contexts]
    return replace(episode, reward=lowered(episode.reward), contexts=contexts)

"""Samples: the contexts of a batch of groups as training data, one sample per context."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recollect.advantages import Estimator, group_advantages
from recollect.types import Context, Episode, Sample


def make_samples(groups: Sequence[Sequence[Episode]], estimator: Estimator) -> list[Sample]:
    """Compare the episodes of every group and turn them into samples."""
    return samples_of(groups, [group_advantages(group, estimator) for group in groups])


def samples_of(
    groups: Sequence[Sequence[Episode]],
    advantages: Sequence[Sequence[Sequence[float]]],
    numbers: Sequence[int] | None = None,
) -> list[Sample]:
    """Turn every trainable context of every episode that counts into a sample.

    Groups with the same of the `numbers` stay together in mini-batches; without
    numbers each group has its own.
    """
    samples: list[Sample] = []
    number = 0
    numbers = range(len(groups)) if numbers is None else numbers
    for g, group, compared in zip(numbers, groups, advantages, strict=True):
        for episode, own in zip(group, compared, strict=True):
            number += 1
            if episode.counts:
                samples += [
                    make_sample(context, advantage, g, number, local=episode.forked > 0)
                    for context, advantage in zip(episode.contexts, own, strict=True)
                    if context.trainable and context.turns
                ]
    return samples


def make_sample(
    context: Context, advantage: float, group: int, episode: int, local: bool = False
) -> Sample:
    """Mark what was sampled in a context and give it the advantage; nothing else is trained."""
    if not context.exact:
        raise ValueError(f"{context.label or context.role}: its tokens are not those of its model")
    # Whatever follows the last sampled token is seen by no trained prediction.
    ids = np.array(context.ids[: context.turns[-1].end], dtype=np.int64)
    trained = np.zeros(len(ids), dtype=bool)
    logprobs = np.zeros(len(ids), dtype=np.float32)
    for turn in context.turns:
        trained[turn.start : turn.end] = True
        logprobs[turn.start : turn.end] = turn.logprobs
    advantages = np.where(trained, np.float32(advantage), np.float32(0))
    return Sample(ids, trained, advantages.astype(np.float32), logprobs, group, episode, local)

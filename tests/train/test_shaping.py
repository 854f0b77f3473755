"""Charges: by hand, and the same for all rewards of an episode."""

from __future__ import annotations

import pytest

from recollect.advantages import group_advantages, grpo
from recollect.train.shaping import charged, overlong, overlong_charge
from recollect.types import Context, Episode, Failure, Task, Turn


def context(*lengths: int, reward: float | None = None, trainable: bool = True) -> Context:
    turns = [Turn(1, (7,) * n, (-1.0,) * n, "stop") for n in lengths]
    return Context("memory", "", trainable, [1], turns, reward)


def episode(*contexts: Context, reward: float | None = 1.0) -> Episode:
    return Episode(Task("t", (), ()), 0, list(contexts), reward=reward)


@pytest.mark.parametrize(
    ("tokens", "charge"), [(0, 0), (80, 0), (85, 0.25), (90, 0.5), (100, 1), (300, 1)]
)
def test_overlong_by_hand(tokens, charge):
    assert overlong(tokens, limit=100, margin=20) == charge


def test_an_episode_pays_the_mean_over_the_replies_that_learn():
    fixed = context(300, trainable=False)
    assert overlong_charge(episode(context(85, 10), context(100), fixed), 100, 20) == (1.25 / 3)
    assert overlong_charge(episode(fixed), 100, 20) == 0.0


def test_charges_lower_every_reward_and_leave_the_episodes_as_they_are():
    first = episode(context(1), context(1, reward=0.5))
    failed = episode(context(1), reward=None)
    failed.failure = Failure("policy", "Timeout", "too slow")
    second = episode(context(1), context(1, reward=0.5))
    groups = [[first, failed, second]]
    ((one, broken, two),) = charged(groups, [[0.25, 9.0, 0.0]])
    assert (one.reward, [c.reward for c in one.contexts]) == (0.75, [None, 0.25])
    assert broken.reward is None and not broken.ok
    assert (two.reward, [c.reward for c in two.contexts]) == (1.0, [None, 0.5])
    assert (first.reward, first.contexts[1].reward) == (1.0, 0.5)
    # Means of 0.5 (0.75 and 0.25) and 0.75 (1 and 0.5): 0.625 is subtracted.
    assert group_advantages([one, broken, two], grpo) == [[0.125, -0.375], [0.0], [0.375, -0.125]]

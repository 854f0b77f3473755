"""What a step charges for, and which groups it learns from: by hand."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest

from recollect.config.engine import LossConfig
from recollect.config.presets import preset
from recollect.config.rollout import OverlongConfig, RolloutConfig
from recollect.errors import UserError
from recollect.train.comparison import charge, compare, learned_from
from recollect.types import Context, Episode, Failure, Task, Turn


def episode(reward: float | None, *tokens: int) -> Episode:
    """Make an episode with a context for every number of tokens; without a reward it failed."""
    contexts = [
        Context("memory", "", True, [1] * (1 + n), [Turn(1, (7,) * n, (-1.0,) * n, "stop")])
        for n in tokens
    ]
    found = Episode(Task("t", (), ()), 0, contexts, reward=reward)
    if reward is None:
        found.failure = Failure("policy", "Timeout", "too slow")
    return found


CHARGING = replace(
    preset("demo"),
    loss=LossConfig(kl_coef=0.5, kl_in="reward"),
    overlong=OverlongConfig(limit=10, margin=5, charge=0.2),
)


def test_charges_by_hand():
    """R - 0.2 (mean over replies of how far they are into the last 5 of 10) - 0.5 (sum of KL)."""
    groups = [[episode(1.0, 4, 10), episode(None, 6), episode(0.0, 6)]]
    # A sample of n tokens strays by n / 10.
    found, paid = charge(CHARGING, lambda own: [s.trained.sum() / 10 for s in own], groups)
    # First: replies pay 0 and 1, so 0.2 x 0.5; KL 0.5 (0.4 + 1.0). Third: 0.2 x 1/5; 0.5 x 0.6.
    assert found[0][0].reward == pytest.approx(1.0 - 0.1 - 0.7)
    assert found[0][2].reward == pytest.approx(0.0 - 0.04 - 0.3)
    assert not found[0][1].ok
    assert paid["charge/kl"] == pytest.approx((0.7 + 0.0 + 0.3) / 3)
    assert paid["charge/overlong"] == pytest.approx((0.1 + 0.04 + 0.04) / 3)


def test_nothing_to_charge_is_no_charge():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = charge(CHARGING, lambda _own: [], [])
    assert found == ([], {"charge/overlong": 0.0, "charge/kl": 0.0})


def test_refills_keep_what_can_be_told_apart():
    mixed = [episode(1.0, 1), episode(0.0, 1)]
    alike = [episode(1.0, 1), episode(1.0, 1)]
    # What is left of a group is alike with itself, however well it did.
    alone = [episode(1.0, 1), episode(None, 1)]
    config = replace(preset("demo"), rollout=RolloutConfig(n=2, refills=1))
    assert learned_from(config, [alike, mixed, alone]) == [mixed]
    config = replace(config, rollout=RolloutConfig(n=2))
    assert learned_from(config, [alike, mixed, alone]) == [alike, mixed, alone]


def test_one_episode_per_task_cannot_be_refilled():
    with pytest.raises(UserError, match="one episode per task"):
        RolloutConfig(n=1, refills=1)


@pytest.mark.parametrize(("weight", "worse"), [(1.0, -0.75), (0.2, -0.15), (0.0, 0.0)])
def test_what_did_worse_counts_as_much_as_one_says(weight, worse):
    """Three of four were right: 1 - 0.75 each, and 0 - 0.75 for the one that was not."""
    config = replace(preset("demo"), negative_weight=weight)
    groups = [[episode(1.0, 1, 1), episode(0.0, 1), episode(1.0, 1), episode(1.0, 1)]]
    (found,) = compare(config, groups)
    assert found[0] == [0.25, 0.25] and found[2:] == [[0.25], [0.25]]
    assert found[1] == [pytest.approx(worse)]

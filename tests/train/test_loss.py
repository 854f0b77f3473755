"""The loss, number by number."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from recollect.train import loss
from recollect.train.loss import LossStats, TrainedTokens, low_var_kl, policy_loss
from recollect.train.settings import LossConfig


def tokens(ratios: list[float], advantages: list[float], **more) -> TrainedTokens:
    """Make tokens of weight 1 whose logprob is log(ratio) and whose behaviour's is 0."""
    logprob_T = torch.tensor(ratios).log().requires_grad_()
    ones_T = torch.ones(len(ratios))
    return TrainedTokens(logprob_T, 0 * ones_T, torch.tensor(advantages), ones_T, **more)


# ratio, advantage, loss by hand, whether a gradient flows, which counter it raises
CASES = [
    (1.0, 2.0, -2.0, True, None),
    (1.1, 1.0, -1.1, True, None),
    (1.5, 1.0, -1.2, False, "clip_high"),
    (0.5, 1.0, -0.5, True, None),
    (0.5, -1.0, 0.8, False, "clip_low"),
    (1.5, -1.0, 1.5, True, None),
    (4.0, -1.0, 3.0, False, "clip_dual"),
    (4.0, 1.0, -1.2, False, "clip_high"),
    (1.3, 0.0, 0.0, False, None),
]


@pytest.mark.parametrize(("ratio", "advantage", "value", "flows", "counter"), CASES)
def test_clip_and_dual_clip(ratio, advantage, value, flows, counter):
    given = tokens([ratio], [advantage])
    result = policy_loss(LossConfig(), given)
    assert result.loss.item() == pytest.approx(value)
    result.loss.backward()
    assert bool(given.logprob_T.grad.abs().sum() > 0) == flows
    raised = {name for name in ("clip_high", "clip_low", "clip_dual") if result.stats.sums[name]}
    assert raised == ({counter} if counter else set())


def test_clip_bounds_are_separate():
    config = LossConfig(clip_low=0.1, clip_high=0.3)
    assert policy_loss(config, tokens([2.0], [1.0])).loss.item() == pytest.approx(-1.3)
    assert policy_loss(config, tokens([0.2], [-1.0])).loss.item() == pytest.approx(0.9)


def test_kl_is_zero_at_the_reference_and_by_hand_elsewhere():
    same = torch.tensor([-1.0, -3.0])
    assert low_var_kl(same, same).tolist() == [0.0, 0.0]
    given = torch.tensor([-1.0], requires_grad=True)
    value = low_var_kl(given, torch.tensor([-1.5]))
    assert value.item() == pytest.approx(math.exp(-0.5) + 0.5 - 1)
    value.sum().backward()
    assert float(given.grad) == pytest.approx(1 - math.exp(-0.5))
    assert low_var_kl(torch.tensor([-90.0]), torch.tensor([0.0])).tolist() == [10.0]


def test_kl_enters_with_its_coefficient():
    config = LossConfig(kl_coef=0.5)
    given = tokens([1.0, 1.0], [1.0, 0.0], reference_T=torch.tensor([0.3, -0.3]))
    result = policy_loss(config, given)
    kl = math.exp(0.3) - 0.3 - 1 + math.exp(-0.3) + 0.3 - 1
    assert result.loss.item() == pytest.approx(-1.0 + 0.5 * kl, rel=1e-5)
    assert result.stats.losses["kl_loss"] == pytest.approx(0.5 * kl, rel=1e-5)
    assert result.stats.sums["kl"] == pytest.approx(kl, rel=1e-5)


def test_a_runaway_ratio_stays_finite():
    given = tokens([1.0, 1.0], [1.0, -1.0])
    far = TrainedTokens(given.logprob_T, torch.tensor([-200.0, 200.0]), *_rest(given))
    result = policy_loss(LossConfig(), far)
    assert math.isfinite(result.loss.item())
    assert math.isfinite(result.stats.ratio_max)


def _rest(given: TrainedTokens):
    return given.advantage_T, given.weight_T


def test_stats_add_up_over_parts():
    ratios, advantages = [0.5, 1.0, 1.7, 4.0, 0.9], [1.0, -1.0, 2.0, -0.5, 0.0]
    reference = torch.linspace(-0.5, 0.5, 5)
    whole = policy_loss(LossConfig(), tokens(ratios, advantages, reference_T=reference))
    total = LossStats()
    for part in (slice(0, 2), slice(2, 5)):
        given = tokens(ratios[part], advantages[part], reference_T=reference[part])
        total += policy_loss(LossConfig(), given).stats
    assert total.tokens == whole.stats.tokens == 5
    assert total.ratio_max == pytest.approx(4.0)
    for name, value in whole.stats.means().items():
        assert total.means()[name] == pytest.approx(value, rel=1e-5)
    for name, value in whole.stats.losses.items():
        assert total.losses[name] == pytest.approx(value, rel=1e-5)
    assert LossStats().means() == {}


def test_mismatch_is_zero_for_the_same_policy_and_positive_otherwise():
    assert policy_loss(LossConfig(), tokens([1.0], [1.0])).stats.sums["behaviour_kl"] == 0.0
    for ratio in (0.5, 2.0):
        found = policy_loss(LossConfig(), tokens([ratio], [1.0])).stats.sums["behaviour_kl"]
        assert found == pytest.approx(ratio - 1 - math.log(ratio), rel=1e-5)


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (loss.token_mean, [1 / 8] * 4),
        (loss.sequence_mean_token_sum, [1 / 3] * 4),
        (loss.sequence_mean_token_mean, [1 / 3, 1 / 9, 1 / 12, 1 / 3]),
        (loss.episode_mean, [1 / 8, 1 / 8, 1 / 8, 1 / 8]),
        (loss.constant_length, [1 / 3 / 1024] * 4),
    ],
)
def test_weights(aggregate, expected):
    """Samples of 1, 3, 4 and 0 tokens; the first two are one episode."""
    weight_B = aggregate(np.array([1, 3, 4, 0]), np.array([5, 5, 9, 9]))
    np.testing.assert_allclose(weight_B, expected)


def test_weights_of_a_batch_without_tokens_are_finite():
    for aggregate in (loss.token_mean, loss.sequence_mean_token_mean, loss.episode_mean):
        assert np.isfinite(aggregate(np.zeros(2, dtype=int), np.arange(2))).all()
        assert len(aggregate(np.zeros(0, dtype=int), np.zeros(0, dtype=int))) == 0

"""The loss, number by number."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from recollect.config.engine import LossConfig
from recollect.errors import UserError
from recollect.train import loss
from recollect.train.loss import LossStats, TrainedTokens, low_var_kl, policy_loss


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


def test_weighing_is_chosen_by_the_settings():
    trained_B, episode_B = np.array([1, 3, 4, 0]), np.array([5, 5, 9, 9])
    for name in ("token_mean", "sequence_mean_token_sum", "episode_mean"):
        chosen = loss.aggregate_of(LossConfig(aggregate=name))(trained_B, episode_B)
        np.testing.assert_array_equal(chosen, getattr(loss, name)(trained_B, episode_B))
    chosen = loss.aggregate_of(LossConfig(aggregate="constant_length", length=50))
    np.testing.assert_allclose(chosen(trained_B, episode_B), [1 / 150] * 4)


# --- sequences ------------------------------------------------------------------------------------

GSPO = LossConfig(kind="gspo", clip_low=0.1, clip_high=0.3)


def in_sequences(ratios: list[float], advantages: list[float], numbers: list[int]):
    return tokens(ratios, advantages, sequence_T=torch.tensor(numbers))


def test_gspo_by_hand():
    # Sequence 0: sqrt(2 * 0.5) = 1. Sequence 1: sqrt(1.5 * 6) = 3. Sequence 2: 0.2.
    given = in_sequences([2.0, 1.5, 0.5, 6.0, 0.2], [1.0, 2.0, 1.0, 2.0, -1.0], [0, 1, 0, 1, 2])
    result = policy_loss(GSPO, given)
    # -1 and -1; clipped at 1.3: -2.6 and -2.6; clipped at 0.9: 0.9
    assert result.loss.item() == pytest.approx(-1 - 1 - 2.6 - 2.6 + 0.9)
    result.loss.backward()
    # Tokens alone would have been clipped in sequence 0: their sequence is not.
    assert given.logprob_T.grad.tolist() == pytest.approx([-1.0, 0.0, -1.0, 0.0, 0.0])
    sums = result.stats.sums
    assert (sums["clip_high"], sums["clip_low"], sums["clip_dual"]) == (2, 1, 0)


def test_gspo_has_the_gradient_of_the_sequences_ratio():
    """Against autograd through the published formula: a mean over sequences of one ratio each."""
    ratios, numbers = [1.1, 0.8, 1.05, 0.97, 1.2], [0, 0, 1, 1, 1]
    given = in_sequences(ratios, [0.7, 0.7, -1.2, -1.2, -1.2], numbers)
    weight_T = torch.tensor([1 / 4, 1 / 4, 1 / 6, 1 / 6, 1 / 6])  # mean of two sequences' means
    config = LossConfig(kind="gspo", clip_low=0.5, clip_high=0.5)
    policy_loss(config, TrainedTokens(**{**vars(given), "weight_T": weight_T})).loss.backward()
    logprob_T = given.logprob_T.detach().requires_grad_()
    s = [logprob_T[:2].mean().exp(), logprob_T[2:].mean().exp()]
    (-(0.7 * s[0] - 1.2 * s[1]) / 2).backward()
    torch.testing.assert_close(given.logprob_T.grad, logprob_T.grad)


def test_a_sequence_in_two_parts_adds_up():
    ratios, advantages = [1.1, 0.9, 1.2, 0.7], [1.0, 1.0, 1.0, 1.0]
    whole = in_sequences(ratios, advantages, [0, 0, 0, 0])
    result = policy_loss(GSPO, whole)
    result.loss.backward()
    mean = sum(math.log(r) for r in ratios) / 4
    parts, total = [], 0.0
    for part in (slice(0, 1), slice(1, 4)):
        count = len(ratios[part])
        given = tokens(
            ratios[part], advantages[part], sequence_log_ratio_T=torch.full((count,), mean)
        )
        own = policy_loss(GSPO, given)
        own.loss.backward()
        parts.append(given.logprob_T.grad)
        total += own.loss.item()
    assert total == pytest.approx(result.loss.item())
    torch.testing.assert_close(torch.cat(parts), whole.logprob_T.grad)


def test_gspo_needs_sequences():
    with pytest.raises(ValueError, match="which sequence"):
        policy_loss(GSPO, tokens([1.0], [1.0]))


# --- the other terms ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "advantage", "factor", "counter"),
    [
        (1.1, 2.0, 1.1, None),
        (5.0, 2.0, 1.3, "clip_high"),
        (5.0, -2.0, 1.3, "clip_high"),
        (0.2, 2.0, 0.9, "clip_low"),
        (5.0, 0.0, 1.3, None),
    ],
)
def test_cispo_weighs_a_gradient_that_never_vanishes(ratio, advantage, factor, counter):
    given = tokens([ratio], [advantage])
    result = policy_loss(LossConfig(kind="cispo", clip_low=0.1, clip_high=0.3), given)
    assert result.loss.item() == pytest.approx(-factor * advantage * math.log(ratio))
    result.loss.backward()
    assert float(given.logprob_T.grad) == pytest.approx(-factor * advantage)
    raised = {name for name in ("clip_high", "clip_low", "clip_dual") if result.stats.sums[name]}
    assert raised == ({counter} if counter else set())


# estimator, its value and its gradient at logprob - reference = 0.5
@pytest.mark.parametrize(
    ("kl", "value", "slope"),
    [
        ("k1", 0.5, 1.0),
        ("k2", 0.125, 0.5),
        ("k3", math.exp(-0.5) - 0.5, 1 - math.exp(-0.5)),
    ],
)
def test_divergences_by_hand(kl, value, slope):
    given = tokens([1.0], [0.0], reference_T=torch.tensor([-0.5]))
    result = policy_loss(LossConfig(kl=kl, kl_coef=2.0), given)
    assert result.loss.item() == pytest.approx(2 * value)
    result.loss.backward()
    assert float(given.logprob_T.grad) == pytest.approx(2 * slope)
    assert result.stats.sums["kl"] == pytest.approx(value)


def test_divergences_average_to_the_kl():
    """Over what the policy draws: k1 and k3 to its value, k2's gradient to its gradient."""
    logits = torch.tensor([0.3, -0.2, 0.5], requires_grad=True)
    reference = torch.tensor([0.1, 0.0, 0.2]).log_softmax(-1)
    logprob = logits.log_softmax(-1)
    probability = logprob.exp()
    kl = (probability * (logprob - reference)).sum()
    (exact,) = torch.autograd.grad(kl, logits, retain_graph=True)
    for estimate in (loss.k1, loss.low_var_kl):
        mean = (probability * estimate(logprob, reference)).sum()
        assert mean.item() == pytest.approx(kl.item(), abs=1e-6)
    drawn = (probability.detach() * loss.k2(logprob, reference)).sum()
    (found,) = torch.autograd.grad(drawn, logits, retain_graph=True)
    torch.testing.assert_close(found, exact)
    nothing = (probability.detach() * loss.k1(logprob, reference)).sum()
    (found,) = torch.autograd.grad(nothing, logits)
    torch.testing.assert_close(found, torch.zeros(3))


def test_entropy_enters_with_its_coefficient():
    entropy_T = torch.tensor([0.5, 2.0], requires_grad=True)
    given = tokens([1.0, 1.0], [1.0, 0.0], entropy_T=entropy_T)
    result = policy_loss(LossConfig(entropy_coef=0.1), given)
    assert result.loss.item() == pytest.approx(-1.0 - 0.1 * 2.5)
    result.loss.backward()
    assert entropy_T.grad.tolist() == pytest.approx([-0.1, -0.1])
    assert result.stats.means()["entropy"] == pytest.approx(1.25)


def test_truncated_importance_sampling_by_hand():
    # Against the sampler: 1.5, 6, 0.5. The trainer had 1.25, 4, 0.5 before the batch.
    given = tokens([1.5, 6.0, 0.5], [1.0, 1.0, -1.0], old_T=torch.tensor([1.25, 4.0, 0.5]).log())
    result = policy_loss(LossConfig(tis_cap=2.0), given)
    # min(1.25, 2) * 1.2 (r = 1.2); min(4, 2) * 1.2 (r = 1.5, clipped); 0.5 * 1 (r = 1)
    assert result.loss.item() == pytest.approx(-1.25 * 1.2 - 2 * 1.2 + 0.5)
    result.loss.backward()
    assert given.logprob_T.grad.tolist() == pytest.approx([-1.5, 0.0, 0.5])
    means = result.stats.means()
    assert means["tis_weight"] == pytest.approx((1.25 + 2 + 0.5) / 3)
    assert means["tis_capped"] == pytest.approx(1 / 3)
    assert result.stats.ratio_max == pytest.approx(6.0)  # the mismatch is still the sampler's


def test_a_batch_used_once_is_its_own_past():
    given = tokens([1.5, 6.0], [1.0, 1.0])
    result = policy_loss(LossConfig(tis_cap=2.0), given)
    assert result.loss.item() == pytest.approx(-1.5 - 2.0)
    result.loss.backward()
    assert given.logprob_T.grad.tolist() == pytest.approx([-1.5, -2.0])  # no clip: r = 1


@pytest.mark.parametrize(
    "wrong", [{"kl_coef": -1.0}, {"tis_cap": -2.0}, {"dual_clip": 1.0}, {"length": 0}]
)
def test_settings_that_cannot_be(wrong):
    (name,) = wrong
    with pytest.raises(UserError, match=f"loss.{name} is"):
        LossConfig(**wrong)

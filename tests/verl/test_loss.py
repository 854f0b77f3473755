"""Our loss as verl calls it, beside the embedded engine's and, where that is it, verl's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.metric import Metric
from verl.workers.config import FSDPActorConfig
from verl.workers.utils.losses import ppo_loss

from recollect.config.engine import LossConfig
from recollect.engines.verl.trainer import loss
from recollect.train.loss import TrainedTokens, aggregate_of, policy_loss
from recollect.train.rows import sequences
from recollect.types import Sample

PROMPTS = (3, 1, 5, 2)
MASKS = ((1, 1), (1, 0, 0, 1, 1), (1,), (0,))  # the last one is padding
EPISODES = np.array([0, 0, 1, 2])
PARTS = [[0, 1, 2]]


def nested(rows) -> torch.Tensor:
    return torch.nested.as_nested_tensor(
        [torch.as_tensor(row) for row in rows], layout=torch.jagged
    )


class Batch:
    """Rows with random numbers, as verl has them and as the embedded engine has them."""

    def __init__(self, config: LossConfig, seed: int = 0) -> None:
        draw = np.random.default_rng(seed)
        masks = [np.array(mask) for mask in MASKS]
        noise = lambda scale: [draw.normal(0, scale, len(m)).astype("f4") for m in masks]  # noqa: E731
        self.now = [torch.tensor(-abs(row) - 0.1, requires_grad=True) for row in noise(1.0)]
        now = [row.detach().numpy() for row in self.now]
        self.old = [own + step for own, step in zip(now, noise(0.4), strict=True)]
        self.behaviour = [own + step for own, step in zip(self.old, noise(0.2), strict=True)]
        self.reference = [own + step for own, step in zip(now, noise(0.3), strict=True)]
        value_B = draw.normal(0, 1, len(masks)).astype("f4")
        self.advantages = [m * v for m, v in zip(masks, value_B, strict=True)]
        trained_B = np.array([int(mask.sum()) for mask in masks])
        weight_B = loss.row_weights(aggregate_of(config), trained_B, EPISODES, PARTS)
        self.weights = [(m * w).astype("f4") for m, w in zip(masks, weight_B, strict=True)]
        self.masks = masks

    @property
    def output(self) -> dict[str, torch.Tensor]:
        # verl predicts a token at the place before it: one place to the left.
        rows = [
            torch.cat([torch.zeros(n - 1), own, torch.zeros(1)])
            for n, own in zip(PROMPTS, self.now, strict=True)
        ]
        return {"log_probs": nested(rows)}

    @property
    def data(self) -> TensorDict:
        fields = {
            "prompts": [np.zeros(n, dtype=np.int64) for n in PROMPTS],
            "responses": [np.zeros(len(m), dtype=np.int64) for m in self.masks],
            "response_mask": self.masks,
            "advantages": self.advantages,
            "rollout_log_probs": self.behaviour,
            "old_log_probs": self.old,
            "ref_log_prob": self.reference,
            loss.WEIGHTS: self.weights,
        }
        data = TensorDict({name: nested(rows) for name, rows in fields.items()}, batch_size=4)
        tu.assign_non_tensor(
            data, dp_size=2, batch_num_tokens=sum(int(m.sum()) for m in self.masks),
            global_batch_size=4,
        )  # fmt: skip
        return data

    def flat(self, rows) -> torch.Tensor:
        tensors = [row if isinstance(row, torch.Tensor) else torch.from_numpy(row) for row in rows]
        masks = [torch.from_numpy(mask > 0) for mask in self.masks]
        return torch.cat([row[mask] for row, mask in zip(tensors, masks, strict=True)])

    def samples(self) -> list[Sample]:
        made = []
        for n, mask in zip(PROMPTS, self.masks, strict=True):
            trained = np.concatenate([np.zeros(n), mask]).astype(bool)
            zero = np.zeros(len(trained))
            made.append(Sample(zero.astype(np.int64), trained, zero, zero, 0, 0))
        return made


KINDS = [
    LossConfig(kl_coef=0.0),
    LossConfig(kl_coef=0.3, kl="k2", aggregate="episode_mean"),
    LossConfig(kl_coef=0.0, aggregate="sequence_mean_token_mean"),
    LossConfig(kl_coef=0.0, aggregate="sequence_mean_token_sum"),
    LossConfig(kl_coef=0.0, aggregate="constant_length", length=7),
    LossConfig(kl_coef=0.0, kind="gspo", scope="turn"),
    LossConfig(kl_coef=0.0, kind="gspo", scope="context"),
    LossConfig(kl_coef=0.0, kind="cispo", tis_cap=1.1),
    LossConfig(kl_coef=0.2, tis_cap=2.0),
]


def gradients(batch: Batch, value: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(value, batch.now, allow_unused=True, materialize_grads=True))


@pytest.mark.parametrize("config", KINDS, ids=lambda c: f"{c.kind} {c.scope} {c.aggregate}")
def test_ours_is_the_embedded_engines(config):
    batch, remembers = Batch(config), config.tis_cap > 0
    got, _ = loss.ours(batch.output, batch.data, config=config, remembers=remembers)
    number_T = None
    if config.kind == "gspo":
        number_T = torch.from_numpy(sequences(batch.samples(), config.scope))
    tokens = TrainedTokens(
        batch.flat(batch.now), batch.flat(batch.behaviour), batch.flat(batch.advantages),
        batch.flat(batch.weights), batch.flat(batch.reference) if config.kl_coef else None,
        batch.flat(batch.old) if remembers else None, sequence_T=number_T,
    )  # fmt: skip
    wanted = policy_loss(config, tokens).loss
    assert got.item() == pytest.approx(2 * wanted.item(), rel=1e-5)  # gradients of two ranks
    for a, b in zip(gradients(batch, got), gradients(batch, 2 * wanted), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("kl", [0.0, 0.1])
def test_what_is_native_is_verls_own(kl):
    """With `ppo` and `token_mean` verl's loss is used: it must be the same number and gradient."""
    config = LossConfig(kl_coef=kl)
    assert loss.is_native(config) and not loss.is_native(replace(config, kind="cispo"))
    batch = Batch(config, seed=1)
    batch.old = batch.behaviour  # ratios against the sampler, as `bypass_mode` has them
    actor = FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_c=config.dual_clip,
        use_kl_loss=kl > 0,
        kl_loss_coef=kl,
        kl_loss_type="low_var_kl",
        loss_agg_mode="token-mean",
    )
    theirs, _ = ppo_loss(actor, batch.output, batch.data)
    ours, _ = loss.ours(batch.output, batch.data, config=config, remembers=False)
    assert theirs.item() == pytest.approx(ours.item(), rel=1e-5)
    for a, b in zip(gradients(batch, theirs), gradients(batch, ours), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_a_micro_batch_of_padding_has_no_gradient():
    batch = Batch(LossConfig())
    batch.masks = [np.zeros_like(mask) for mask in batch.masks]
    got, metrics = loss.ours(batch.output, batch.data, config=LossConfig(), remembers=False)
    assert np.isnan(got.item())  # all of the mini-batch: verl takes no step, as with its own loss
    data = batch.data
    tu.assign_non_tensor(data, batch_num_tokens=3)  # other ranks have some
    got, metrics = loss.ours(batch.output, data, config=LossConfig(), remembers=False)
    assert got.item() == 0
    assert all(not own.any() for own in gradients(batch, got))
    assert metrics["actor/pg_loss"].aggregate() == 0


def test_an_empty_mini_batch_is_skipped_as_by_verls_own_loss():
    batch = Batch(LossConfig())
    batch.masks = [np.zeros_like(mask) for mask in batch.masks]
    actor = FSDPActorConfig(strategy="fsdp2", rollout_n=1, ppo_micro_batch_size_per_gpu=1)
    theirs, _ = ppo_loss(actor, batch.output, batch.data)
    ours, _ = loss.ours(batch.output, batch.data, config=LossConfig(kind="cispo"), remembers=False)
    weight = torch.nn.Parameter(torch.ones(1))
    for value in (theirs, ours):
        (gradient,) = torch.autograd.grad(value * weight.sum(), weight)
        # What verl's `optimizer_step` asks before it steps.
        assert not torch.isfinite(torch.nn.utils.get_total_norm([gradient]))


@pytest.mark.parametrize("config", [*KINDS, LossConfig(entropy_coef=0.1, kind="cispo")])
def test_ranks_with_and_without_padding_report_the_same(config):
    """verl puts the numbers of all ranks together, and stops where they are not equally many."""
    full, empty = Batch(config), Batch(config)
    empty.masks = [np.zeros_like(mask) for mask in empty.masks]
    reported = []
    for batch in (full, empty):
        data = batch.data
        tu.assign_non_tensor(data, batch_num_tokens=6)
        output = batch.output | {"entropy": batch.output["log_probs"].detach()}
        _, metrics = loss.ours(output, data, config=config, remembers=config.tis_cap > 0)
        reported.append(metrics)
    assert list(reported[0]) == list(reported[1])
    for name in reported[0]:
        alone = reported[0][name].aggregate()
        both = Metric.aggregate_dp([metrics[name] for metrics in reported])
        assert both == pytest.approx(alone / 2)


def test_weights_count_no_padding():
    trained_B = np.array([2, 3, 1, 0])
    weigh = aggregate_of(LossConfig(aggregate="sequence_mean_token_mean"))
    assert np.allclose(
        loss.row_weights(weigh, trained_B, EPISODES, PARTS), [1 / 6, 1 / 9, 1 / 3, 0]
    )

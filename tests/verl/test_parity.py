"""Our advantages and losses beside verl's functions, on random batches.

Where the two differ on purpose, a test says so, and docs/algorithms.md as well.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("verl")

from omegaconf import OmegaConf
from verl.experimental.reward_loop.reward_manager.dapo import DAPORewardManager
from verl.protocol import DataProto
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.ray_trainer import apply_kl_penalty
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils.torch_functional import entropy_from_logits, logprobs_from_logits
from verl.workers.config import FSDPActorConfig

from recollect import advantages
from recollect.config.engine import LossConfig
from recollect.config.presets import preset
from recollect.config.rollout import OverlongConfig
from recollect.train.comparison import ESTIMATORS, charge
from recollect.train.critic import value_loss
from recollect.train.loss import (
    DIVERGENCES,
    TrainedTokens,
    aggregate_of,
    policy_loss,
    truncated_weight,
)
from recollect.train.predictions import _predict
from recollect.types import Context, Episode, Task, Turn

SEEDS = range(3)


# Advantages


def episode(rollout: int, reward: float, lengths: list[int], **scores: float) -> Episode:
    """Make an episode with one context of sampled tokens for every length."""
    contexts = [
        Context("memory", ids=list(range(n + 1)), turns=[Turn(1, (0,) * n, (0.0,) * n, "stop")])
        for n in lengths
    ]
    made = Episode(Task("t", (), ()), rollout, contexts, reward=reward)
    made.scores.update(scores)
    return made


def batch(seed: int, tokens: int | None = None, tasks: int = 5, n: int = 4):
    """Draw groups of episodes of one context each; with `tokens`, all of that length."""
    rng = np.random.default_rng(seed)
    return [
        [
            episode(
                i,
                float(rng.normal()),
                [tokens or int(rng.integers(1, 8))],
                answer=float(rng.integers(0, 2)),
                boxed=float(rng.normal()),
            )
            for i in range(n if task else 1)  # and one group of a single episode
        ]
        for task in range(tasks)
    ]


def rows(groups, reward=lambda e: e.reward):
    """Lay groups out as verl does: rewards at the last token, masks, and who is of which task."""
    sizes = [len(e.contexts[0].turns[0].token_ids) for group in groups for e in group]
    reward_BT = torch.zeros(len(sizes), max(sizes), dtype=torch.float64)
    mask_BT = torch.zeros_like(reward_BT)
    for b, (size, e) in enumerate(zip(sizes, (e for g in groups for e in g), strict=True)):
        reward_BT[b, size - 1], mask_BT[b, :size] = reward(e), 1.0
    uid_B = np.array([f"task {t}" for t, group in enumerate(groups) for _ in group])
    return reward_BT, mask_BT, uid_B


def flat(compared) -> torch.Tensor:
    return torch.tensor([a for group in compared for own in group for a in own]).double()


def assert_equal(theirs_BT, mask_BT, ours_B, tolerance=1e-6):
    assert torch.allclose(theirs_BT, ours_B[:, None] * mask_BT, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("grpo", {"norm_adv_by_std_in_grpo": False}),
        ("grpo_std", {"norm_adv_by_std_in_grpo": True}),
        ("rloo", {}),
    ],
)
def test_group_estimators(seed, name, settings):
    groups = batch(seed)
    reward_BT, mask_BT, uid_B = rows(groups)
    theirs = core_algos.get_adv_estimator_fn(name.removesuffix("_std"))
    ours = [advantages.group_advantages(group, ESTIMATORS[name]) for group in groups]
    found_BT, _ = theirs(reward_BT, mask_BT, index=uid_B, **settings)
    # A lone episode: verl divides it by 1 + 1e-6, we leave it as it is.
    assert_equal(found_BT, mask_BT, flat(ours), 2e-6)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("reinforce_pp", "reinforce_plus_plus"),
        ("reinforce_pp_baseline", "reinforce_plus_plus_baseline"),
    ],
)
def test_estimators_over_the_whole_batch(seed, name, theirs):
    groups = batch(seed, tokens=1)
    ours = [advantages.group_advantages(group, ESTIMATORS[name]) for group in groups]
    ours = advantages.whitened(groups, ours)
    reward_BT, mask_BT, uid_B = rows(groups)
    function = core_algos.get_adv_estimator_fn(theirs)
    found_BT, _ = function(
        token_level_rewards=reward_BT, response_mask=mask_BT, index=uid_B, config=AlgoConfig()
    )
    assert_equal(found_BT, mask_BT, flat(ours))


@pytest.mark.parametrize("seed", SEEDS)
def test_gdpo(seed):
    groups = batch(seed, tokens=1)
    ours = [advantages.gdpo(group, ("answer", "boxed")) for group in groups]
    ours = advantages.whitened(groups, ours)
    reward_BT, mask_BT, uid_B = rows(groups)
    scores = {
        name: np.array([e.scores[name] for group in groups for e in group])
        for name in ("answer", "boxed")
    }
    ones_B1 = torch.ones(len(mask_BT), 1)
    found_BT, _ = core_algos.compute_gdpo_outcome_advantage(
        reward_BT,
        mask_BT,
        uid_B,
        config={"gdpo_reward_keys": ["answer", "boxed"]},
        non_tensor_batch=scores,
        batch={"prompts": ones_B1, "attention_mask": torch.cat([ones_B1, mask_BT], 1).long()},
    )
    assert_equal(found_BT.double(), mask_BT, flat(ours), 1e-5)  # verl computes it in 32 bits


def test_on_purpose_an_episode_counts_once_however_much_it_wrote():
    """verl's whitening is over tokens, so that long replies weigh more; ours is over episodes."""
    groups = batch(0)
    longer = [[episode(e.rollout, e.reward, [40 if i == 0 else 2]) for i, e in enumerate(group)]
              for group in groups]  # fmt: skip
    results = []
    for own in (groups, longer):
        compared = [advantages.group_advantages(group, advantages.raw) for group in own]
        reward_BT, mask_BT, _ = rows(own)
        theirs, _ = core_algos.compute_reinforce_plus_plus_outcome_advantage(
            reward_BT, mask_BT, config=AlgoConfig()
        )
        results.append((flat(advantages.whitened(own, compared)), theirs[:, 0]))
    assert torch.equal(results[0][0], results[1][0])
    assert not torch.allclose(results[0][1], results[1][1], atol=1e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_several_contexts_per_episode(seed):
    """verl's own grpo of several contexts: an episode counts once, by its last context."""
    rng = np.random.default_rng(seed)
    groups = [
        [
            episode(
                i, float(rng.normal()), [int(x) for x in rng.integers(1, 5, rng.integers(1, 4))]
            )
            for i in range(3)
        ]
        for _ in range(3)
    ]
    keys, sizes, rewards, uids = [], [], [], []
    for t, group in enumerate(groups):
        for e in group:
            for i, context in enumerate(e.contexts):
                keys.append(f"{t}_{e.rollout}_{i}")
                sizes.append(len(context.turns[0].token_ids))
                rewards.append(e.reward)
                uids.append(str(t))
    mask_BT = torch.tensor([[float(j < size) for j in range(max(sizes))] for size in sizes])
    reward_BT = torch.zeros_like(mask_BT)
    reward_BT[torch.arange(len(sizes)), torch.tensor(sizes) - 1] = torch.tensor(rewards)
    data = DataProto.from_dict(
        {"response_mask": mask_BT, "token_level_rewards": reward_BT},
        {"uid": np.array(uids, dtype=object)},
    )
    found = compute_advantage_for_multi_trajectories(
        data, keys, core_algos.AdvantageEstimator.GRPO, norm_adv_by_std_in_grpo=False
    )
    ours = [advantages.group_advantages(group, advantages.grpo) for group in groups]
    assert_equal(found.batch["advantages"], mask_BT, flat(ours).float(), 1e-5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.99, 0.95), (0.5, 0.0)])
def test_gae_and_the_critics_loss(seed, gamma, lam):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, 6)
    mask_BT = torch.tensor(
        [[float(j < size) for j in range(max(sizes))] for size in sizes]
    ).double()
    mask_BT[0, 1] = 0.0  # something a tool said stands between two replies
    mask_BT[0, :1], mask_BT[0, 2:4] = 1.0, 1.0
    reward_BT = torch.from_numpy(rng.normal(size=mask_BT.shape)) * mask_BT
    value_BT = torch.from_numpy(rng.normal(size=mask_BT.shape))
    theirs_BT, returns_BT = core_algos.compute_gae_advantage_return(
        reward_BT, value_BT, mask_BT, gamma, lam
    )
    at = [m.bool() for m in mask_BT]
    found = [
        advantages.gae(r[a].numpy(), v[a].numpy(), gamma, lam)
        for r, v, a in zip(reward_BT, value_BT, at, strict=True)
    ]
    white = advantages.whitened_tokens([own for own, _ in found])
    for row, (a, own, (_, returned)) in enumerate(zip(at, white, found, strict=True)):
        assert np.allclose(theirs_BT[row][a], own, atol=1e-9)
        assert np.allclose(returns_BT[row][a], returned, atol=1e-9)

    guess_BT = value_BT + torch.from_numpy(rng.normal(size=mask_BT.shape))
    theirs, share = core_algos.compute_value_loss(guess_BT, returns_BT, value_BT, mask_BT, 0.5)
    chosen = mask_BT.bool()
    count = int(chosen.sum())
    weight_T = torch.full((count,), 1.0 / count, dtype=torch.float64)
    ours = value_loss(guess_BT[chosen], value_BT[chosen], returns_BT[chosen], weight_T, 0.5)
    assert ours.loss == pytest.approx(float(theirs), rel=1e-9)
    assert float(ours.clipped) / count == pytest.approx(float(share))


# Charges


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("kl", "theirs"), [("k1", "kl"), ("k2", "mse"), ("k3", "low_var_kl")])
def test_kl_in_the_reward(seed, kl, theirs):
    """verl charges token by token; an episode of one row pays the same in all."""
    groups = batch(seed, n=3)
    episodes = [e for group in groups for e in group]
    reward_BT, mask_BT, _ = rows(groups)
    rng = torch.Generator().manual_seed(seed)
    own_BT, ref_BT = (-torch.rand(mask_BT.shape, generator=rng) for _ in range(2))
    data = DataProto.from_dict(
        {"response_mask": mask_BT, "token_level_scores": reward_BT, "old_log_probs": own_BT,
         "ref_log_prob": ref_BT}
    )  # fmt: skip
    found, _ = apply_kl_penalty(data, core_algos.FixedKLController(0.3), theirs)
    expected_B = found.batch["token_level_rewards"].sum(1)

    def divergences(samples):
        at = [(s.episode - 1, s.trained.sum()) for s in samples]
        return [float(DIVERGENCES[kl](own_BT[b, :n], ref_BT[b, :n]).sum()) for b, n in at]

    config = replace(preset("demo"), loss=LossConfig(kl=kl, kl_coef=0.3, kl_in="reward"))
    charged, _ = charge(config, divergences, groups)
    assert len(charged) == len(groups)
    ours = [e.reward for group in charged for e in group]
    assert ours == pytest.approx(expected_B.tolist(), rel=1e-6, abs=1e-6)
    assert ours != [e.reward for e in episodes]


@pytest.mark.parametrize("tokens", [1, 6, 7, 9, 10])
def test_overlong_replies(tokens):
    """Up to the limit; verl charges more beyond it, where no reply can be."""
    settings = {"overlong_buffer_cfg": {"enable": True, "len": 4, "penalty_factor": 0.5, "log": 0}}
    settings["max_resp_len"] = 10
    data = DataProto.from_dict(
        {"responses": torch.ones(1, 12, dtype=torch.long),
         "attention_mask": (torch.arange(13)[None] <= tokens).long()},
        {"data_source": np.array(["x"], dtype=object),
         "reward_model": np.array([{"ground_truth": ""}], dtype=object)},
    )  # fmt: skip

    async def run() -> float:
        manager = DAPORewardManager(
            OmegaConf.create({"reward": {"reward_kwargs": settings}}),
            SimpleNamespace(decode=lambda *_args, **_more: ""),
            lambda **_more: 1.0,
        )
        return float((await manager.run_single(data))["reward_score"])

    config = replace(preset("demo"), overlong=OverlongConfig(limit=10, margin=4, charge=0.5))
    ((ours,),), _ = charge(config, lambda _samples: [], [[episode(0, 1.0, [tokens])]])
    assert ours.reward == pytest.approx(asyncio.run(run()))


# Losses


def tokens(seed: int, spread: float = 0.4):
    """Draw log-probabilities and advantages for rows of different lengths."""
    rng = torch.Generator().manual_seed(seed)

    def normal(scale: float = 1.0) -> torch.Tensor:
        return scale * torch.randn(7, 9, generator=rng, dtype=torch.float64)

    mask_BT = torch.arange(9)[None] < torch.randint(1, 10, (7, 1), generator=rng)
    old_BT = -normal().abs()
    return SimpleNamespace(
        mask_BT=mask_BT,
        old_BT=old_BT,
        new_BT=(old_BT + normal(spread)).requires_grad_(),
        ref_BT=old_BT + normal(spread),
        sampler_BT=old_BT + normal(0.5),
        advantage_BT=normal() * mask_BT,
        entropy_BT=normal().abs().requires_grad_(),
    )


def our_loss(config: LossConfig, drawn, **more) -> torch.Tensor:
    trained_B = drawn.mask_BT.sum(1).numpy()
    weight_B = torch.from_numpy(aggregate_of(config)(trained_B, np.arange(len(trained_B))))
    row_BT = torch.arange(7)[:, None].expand(7, 9)
    mask_BT = drawn.mask_BT
    return policy_loss(
        config,
        TrainedTokens(
            logprob_T=drawn.new_BT[mask_BT],
            behaviour_T=drawn.old_BT[mask_BT],
            advantage_T=drawn.advantage_BT[mask_BT],
            weight_T=weight_B[:, None].expand(7, 9)[mask_BT],
            sequence_T=row_BT[mask_BT] if config.kind == "gspo" else None,
            **{name: value[mask_BT] for name, value in more.items()},
        ),
    ).loss


def their_loss(config: LossConfig, drawn, weights_BT=None) -> torch.Tensor:
    mode = {"ppo": "vanilla"}.get(config.kind, config.kind)
    actor = FSDPActorConfig(
        strategy="fsdp",
        rollout_n=1,
        use_dynamic_bsz=True,
        clip_ratio=config.clip_low,
        clip_ratio_low=config.clip_low,
        clip_ratio_high=config.clip_high,
        clip_ratio_c=config.dual_clip,
    )
    actor.global_batch_info["loss_scale_factor"] = config.length
    loss, _ = core_algos.get_policy_loss_fn(mode)(
        old_log_prob=drawn.old_BT,
        log_prob=drawn.new_BT,
        advantages=drawn.advantage_BT,
        response_mask=drawn.mask_BT.double(),
        loss_agg_mode=THEIR_MODES[config.aggregate],
        config=actor,
        rollout_is_weights=weights_BT,
    )
    return loss


THEIR_MODES = {
    "token_mean": "token-mean",
    "sequence_mean_token_sum": "seq-mean-token-sum",
    "sequence_mean_token_mean": "seq-mean-token-mean",
    "constant_length": "seq-mean-token-sum-norm",
}


def assert_same(ours: torch.Tensor, theirs: torch.Tensor, leaf: torch.Tensor) -> None:
    """Compare losses and their gradients."""
    # verl adds 1e-8 to a row's tokens before it divides by them.
    assert float(ours) == pytest.approx(float(theirs), rel=1e-7, abs=1e-8)
    own, other = (torch.autograd.grad(loss, leaf, retain_graph=True)[0] for loss in (ours, theirs))
    assert torch.allclose(own, other, rtol=1e-6, atol=1e-9)
    assert own.abs().max() > 0


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("aggregate", THEIR_MODES)
@pytest.mark.parametrize("kind", ["ppo", "gspo", "cispo"])
@pytest.mark.parametrize(("low", "high", "dual"), [(0.2, 0.2, 3.0), (0.1, 0.28, 1.2)])
def test_policy_losses_and_weighings(seed, aggregate, kind, low, high, dual):
    config = LossConfig(
        kind=kind, scope="context", clip_low=low, clip_high=high, dual_clip=dual, kl_coef=0.0,
        aggregate=aggregate, length=32,
    )  # fmt: skip
    drawn = tokens(seed, spread=0.8)
    assert_same(our_loss(config, drawn), their_loss(config, drawn), drawn.new_BT)


@pytest.mark.parametrize("seed", SEEDS)
def test_ratios_beyond_all_bounds_stay_finite_and_equal(seed):
    drawn = tokens(seed, spread=30.0)
    config = LossConfig(kl_coef=0.0)
    assert_same(our_loss(config, drawn), their_loss(config, drawn), drawn.new_BT)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["ppo", "gspo", "cispo"])
def test_truncated_importance_sampling(seed, kind):
    """verl: ratios against its own old policy, times the truncated weight of the sampler's."""
    drawn = tokens(seed)
    theirs_BT, _ = compute_rollout_correction_weights(
        drawn.old_BT - drawn.sampler_BT, drawn.mask_BT, "token", 2.0
    )
    ours_BT = truncated_weight(drawn.old_BT, drawn.sampler_BT, 2.0)
    assert torch.allclose(ours_BT[drawn.mask_BT], theirs_BT[drawn.mask_BT])
    config = LossConfig(kind=kind, scope="context", kl_coef=0.0, tis_cap=2.0)
    theirs = their_loss(config, drawn, theirs_BT)
    old_BT, drawn.old_BT = drawn.old_BT, drawn.sampler_BT  # what we call behaviour
    assert_same(our_loss(config, drawn, old_T=old_BT), theirs, drawn.new_BT)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "theirs"), [("k1", "kl"), ("k2", "mse"), ("k3", "low_var_kl")])
def test_divergences(seed, name, theirs):
    drawn = tokens(seed, spread=1.5)
    found = DIVERGENCES[name](drawn.new_BT, drawn.ref_BT)
    expected = core_algos.kl_penalty(drawn.new_BT, drawn.ref_BT, theirs)
    assert torch.allclose(found, expected)
    own, other = (torch.autograd.grad(x.sum(), drawn.new_BT)[0] for x in (found, expected))
    assert torch.allclose(own, other)


def test_on_purpose_k1_and_k2_are_bounded():
    """A log-ratio beyond 20 says that something broke; verl bounds only k3."""
    new, ref = torch.tensor([0.0]), torch.tensor([-50.0])
    assert core_algos.kl_penalty(new, ref, "kl") == 50 and DIVERGENCES["k1"](new, ref) == 20
    assert core_algos.kl_penalty(new, ref, "low_var_kl") == DIVERGENCES["k3"](new, ref) == 10


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("aggregate", THEIR_MODES)
def test_the_whole_loss(seed, aggregate):
    """Policy gradient, KL and entropy together, as verl's workers add them up."""
    drawn = tokens(seed)
    config = LossConfig(kl_coef=0.07, entropy_coef=0.03, aggregate=aggregate, length=32)
    ours = our_loss(config, drawn, reference_T=drawn.ref_BT, entropy_T=drawn.entropy_BT)

    def summed(loss_BT: torch.Tensor) -> torch.Tensor:
        mask_BT = drawn.mask_BT.double()
        mode = THEIR_MODES[aggregate]
        return core_algos.agg_loss(loss_BT, mask_BT, mode, loss_scale_factor=32)

    divergence = core_algos.kl_penalty(drawn.new_BT, drawn.ref_BT, "low_var_kl")
    theirs = their_loss(config, drawn) + 0.07 * summed(divergence)
    theirs = theirs - 0.03 * summed(drawn.entropy_BT)
    assert_same(ours, theirs, drawn.new_BT)
    assert_same(ours, theirs, drawn.entropy_BT)


def test_log_probabilities_and_entropies_of_predictions():
    logits_CV = 3 * torch.randn(5, 11, generator=torch.Generator().manual_seed(0))
    head = SimpleNamespace(logits=lambda hidden: hidden)
    every = torch.arange(5)
    ours = _predict(head, logits_CV, every, every, temperature=0.7, entropy=True)
    assert torch.allclose(entropy_from_logits(logits_CV / 0.7), ours[:, 1], atol=1e-6)
    theirs = logprobs_from_logits(logits_CV / 0.7, every)
    assert torch.allclose(theirs, ours[:, 0], atol=1e-6)

"""The critic: its values and gradient the plain way, its loss by hand, and that it learns."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from recollect.commands.dry_run import held
from recollect.config.engine import CriticConfig, LoraConfig, ModelConfig, OptimConfig
from recollect.config.presets import preset
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.config.train import TrainConfig
from recollect.errors import UserError
from recollect.runs.run import Run, read_metrics, without_times
from recollect.train import saved_model
from recollect.train.critic import Critic, explained_variance, load_critic, value_loss
from recollect.train.loop import train
from recollect.train.rollouts import Rollouts
from tests.support.plain import (
    KINDS,
    gradients,
    make_model,
    plain_model,
    random_samples,
    relative_error,
    sample,
)
from tests.support.tiny import tiny_model

OPTIM = OptimConfig(warmup_steps=0, weight_decay=0.0)


class Nobody:
    def __getattr__(self, _name: str):
        return lambda *_args: None


def make_critic(folder: Path, kind: str = "llama", **more) -> Critic:
    """Make a critic whose head has something to say."""
    policy = make_model(folder, kind)
    lora = more.pop("lora", LoraConfig())
    model = load_critic(ModelConfig(path=str(folder), device="cpu", lora=lora), CONFIG, policy)
    torch.manual_seed(3)
    torch.nn.init.normal_(model.network.get_output_embeddings().weight)
    return Critic(model, CONFIG, OPTIM, **more)


CONFIG = CriticConfig(lr=1e-3)


def plain_critic(folder: Path, critic: Critic) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Return the body as transformers' users load it, and the head, in float64."""
    head = torch.nn.Linear(critic.model.network.get_output_embeddings().in_features, 1).double()
    head.load_state_dict(critic.model.network.get_output_embeddings().state_dict())
    return plain_model(folder).get_decoder(), head


# --- formulas -------------------------------------------------------------------------------------


def test_the_loss_by_hand():
    value, old, returns = (torch.tensor(x) for x in ([1.0, 1.0, 0.2], [0.0, 0.8, 0.0], [3.0] * 3))
    weight = torch.tensor([0.5, 0.25, 0.25])
    # Kept within 0.5 of the old: 0.5, 1, 0.2. Squares: 4 or 6.25, 4, 7.84.
    found = value_loss(value, old, returns, weight, clip=0.5)
    assert float(found.loss) == pytest.approx((0.5 * 6.25 + 0.25 * 4 + 0.25 * 7.84) / 2)
    assert int(found.clipped) == 1
    # A value that was clipped gains nothing by going farther: no gradient.
    value.requires_grad_()
    value_loss(value, old, returns, weight, clip=0.5).loss.backward()
    assert value.grad.tolist() == pytest.approx([0.0, 0.25 * -2.0, 0.25 * -2.8])


def test_the_loss_against_loops():
    rng = np.random.default_rng(0)
    value, old, returns, weight = rng.normal(size=(4, 50))
    expected, clipped = 0.0, 0
    for v, o, r, w in zip(value, old, returns, weight, strict=True):
        kept = o - 0.3 if v < o - 0.3 else o + 0.3 if v > o + 0.3 else v
        expected += w * max((v - r) ** 2, (kept - r) ** 2) / 2
        clipped += (kept - r) ** 2 > (v - r) ** 2
    found = value_loss(*map(torch.from_numpy, (value, old, returns, weight)), clip=0.3)
    assert float(found.loss) == pytest.approx(expected, rel=1e-12)
    assert int(found.clipped) == clipped > 0


def test_explained_variance_by_hand():
    returns = np.array([0.0, 1.0, 2.0, 3.0])
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(returns, np.full(4, 7.0)) == 0.0
    # Errors 0, 1, 0, 1: variance 1/4 of returns' 5/4
    assert explained_variance(returns, np.array([0.0, 0.0, 2.0, 2.0])) == pytest.approx(0.8)
    assert explained_variance(np.ones(3), np.zeros(3)) == explained_variance(*[np.empty(0)] * 2)


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(KINDS))
def test_values_and_gradient_are_those_of_single_rows(tmp_path, kind):
    """Packed in tries, cut into micro-batches, softcapped heads or not."""
    critic = make_critic(tmp_path, kind, token_budget=40)
    body, head = plain_critic(tmp_path, critic)
    samples = random_samples(5)
    values = critic.values(samples)
    total = sum(len(own) for own in values)
    loss = torch.zeros((), dtype=torch.float64)
    for row, own in zip(samples, values, strict=True):
        at = torch.from_numpy(np.flatnonzero(row.trained))
        hidden = body(torch.from_numpy(row.token_ids)[None]).last_hidden_state[0]
        plain = head(hidden)[at - 1, 0]
        np.testing.assert_allclose(own, plain.detach().numpy(), rtol=1e-4, atol=1e-4)
        # gamma = lam = 1: everywhere the return is the reward, and nothing is clipped at first.
        loss = loss + (plain - float(row.advantages[row.trained][-1])).square().sum() / 2 / total
    loss.backward()
    expected = {f"model.{n}": g for n, g in gradients(body).items()} | {
        f"lm_head.{n}": g for n, g in gradients(head).items()
    }
    seen: dict[str, torch.Tensor] = {}
    handle = register_optimizer_step_pre_hook(
        lambda *_: seen.update(gradients(critic.model.network))
    )
    critic.optimiser.config = replace(OPTIM, clip_norm=float("inf"))
    _, metrics = critic.judge(samples)
    handle.remove()
    assert metrics["critic/value_loss"] == pytest.approx(float(loss.detach()), rel=1e-4)
    assert relative_error(seen, expected) < 1e-5


def test_advantages_are_whitened_and_stand_at_trained_tokens(tmp_path):
    critic = make_critic(tmp_path)
    samples = [*random_samples(2), sample([1, 2, 1], [], 0.0)]
    values = critic.values(samples)
    judged, metrics = critic.judge(samples)
    every = np.concatenate([s.advantages[s.trained] for s in judged])
    assert every.mean() == pytest.approx(0.0, abs=1e-5)
    assert every.std(ddof=1) == pytest.approx(1.0, rel=1e-4)
    raw = np.concatenate(
        [s.advantages[s.trained] - v for s, v in zip(samples, values, strict=True)]
    )
    np.testing.assert_allclose(every, (raw - raw.mean()) / raw.std(ddof=1), rtol=1e-3, atol=1e-5)
    assert all(not s.advantages[~s.trained].any() for s in judged)
    assert metrics["critic/return"] == pytest.approx(
        np.concatenate([s.advantages[s.trained] for s in samples]).mean(), rel=1e-4
    )


def test_nothing_to_judge_moves_nothing(tmp_path):
    critic = make_critic(tmp_path, updates_per_step=2)
    before = {n: p.detach().clone() for n, p in critic.model.network.named_parameters()}
    judged, metrics = critic.judge([])
    assert judged == [] and critic.optimiser.updates == 2
    assert all(np.isfinite(value) for value in metrics.values())
    assert all(torch.equal(before[n], p) for n, p in critic.model.network.named_parameters())


def test_it_learns_which_beginnings_are_rewarded(tmp_path):
    rng = np.random.default_rng(1)
    critic = make_critic(tmp_path, updates_per_step=2)
    critic.optimiser.config = replace(OPTIM, lr=3e-3)
    found = []
    for _ in range(50):
        starts = rng.integers(1, 3, 16)
        rows = [[int(start), 5, *rng.integers(3, 9, 4).tolist()] for start in starts]
        batch = [
            sample(row, [3, 4, 5], float(row[0] == 1), group=i, episode=i)
            for i, row in enumerate(rows)
        ]
        found.append(critic.judge(batch)[1])
    assert found[-1]["critic/value_loss"] < 0.1 * found[0]["critic/value_loss"]
    assert found[-1]["critic/explained_variance"] > 0.8


def test_with_adapters_these_and_the_head_learn(tmp_path):
    critic = make_critic(tmp_path, lora=LoraConfig(rank=2))
    before = {n: p.detach().clone() for n, p in critic.model.network.named_parameters()}
    critic.judge(random_samples(1))
    critic.judge(random_samples(2))
    after = dict(critic.model.network.named_parameters())
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert {name for name in moved if "lora_" not in name} == {"lm_head.weight", "lm_head.bias"}
    assert len(moved) > 2


def test_a_critic_that_is_not_there_is_named_by_its_setting(tmp_path):
    policy = make_model(tmp_path / "policy")
    with pytest.raises(UserError, match=r"nowhere(?s:.*)give --critic\.path"):
        load_critic(ModelConfig(str(tmp_path / "policy")), CriticConfig("nowhere"), policy)
    config = demo(critic=CriticConfig("nowhere"))
    with pytest.raises(UserError, match=r"give --critic\.path"):
        held(config, 1, gpu=False)


def test_a_critic_of_other_tokens_is_refused(tmp_path):
    policy = make_model(tmp_path / "policy")
    other = tiny_model(tmp_path / "other")
    text = (other / "tokenizer.json").read_text().replace("<|start|>", "<|begin|>")
    (other / "tokenizer.json").write_text(text)
    with pytest.raises(UserError, match="other tokens"):
        load_critic(ModelConfig(path="policy"), CriticConfig(path=str(other)), policy)


# --- runs -----------------------------------------------------------------------------------------


def demo(**changes) -> TrainConfig:
    settings = {
        "advantage": "gae",
        "critic": CriticConfig(lr=5e-4),
        "rollout": RolloutConfig(tasks=4, n=2),
        "val": ValidationConfig(tasks=2, before_training=False),
        "updates_per_step": 2,
        "test_freq": 100,
    }
    return replace(preset("demo"), **(settings | changes))


def run(folder: Path, config: TrainConfig) -> list[dict[str, float]]:
    opened = Run.open(folder, asdict(config), keep=config.keep, may_change=("steps",))
    asyncio.run(train(Rollouts.open(config), opened, Nobody()))
    opened.close()
    return read_metrics(folder)


def test_rewards_rise_with_a_critic(tmp_path):
    config = demo(
        rollout=RolloutConfig(tasks=24, n=4),
        critic=CriticConfig(lr=1e-3, warmup=2),
        optim=OptimConfig(lr=1e-3, warmup_steps=8, weight_decay=0.0),
        updates_per_step=4,
        steps=12,
    )
    rows = run(tmp_path / "run", config)
    reward = [row["reward/mean"] for row in rows]
    assert np.mean(reward[-4:]) > np.mean(reward[:4]) + 0.08
    # Of rewards that are 0 or 1, whoever expects nothing has half the mean as loss.
    loss = [row["critic/value_loss"] / (row["reward/mean"] / 2) for row in rows]
    assert loss[0] > 0.9
    assert np.mean(loss[-4:]) < 0.7


def test_in_the_warm_up_only_the_critic_learns(tmp_path):
    config = demo(critic=CriticConfig(lr=5e-4, warmup=2), steps=3)
    rows = run(tmp_path / "run", config)
    assert ["train/grad_norm" in row for row in rows] == [False, False, True]
    assert all(row["critic/grad_norm"] > 0 for row in rows)
    first = run(tmp_path / "short", replace(config, steps=3, save_freq=2, keep=9))
    assert [without_times(r) for r in first] == [without_times(r) for r in rows]
    rollouts = Rollouts.open(config)
    before = {n: p.detach().clone() for n, p in rollouts.model.network.named_parameters()}
    saved_model.load_weights(tmp_path / "short/checkpoints/step-000002", rollouts.model)
    assert all(torch.equal(before[n], p) for n, p in rollouts.model.network.named_parameters())


def test_a_resumed_run_equals_one_never_stopped(tmp_path):
    whole = run(tmp_path / "whole", demo(steps=4))
    run(tmp_path / "cut", demo(steps=2))
    again = run(tmp_path / "cut", demo(steps=4))
    compare = [[without_times(row) for row in rows if row["step"] != 2] for rows in (whole, again)]
    assert compare[0] == compare[1]
    ends = [tmp_path / name / "checkpoints/step-000004" for name in ("whole", "cut")]
    for name in ("weights", "optimiser", "critic-weights", "critic-optimiser"):
        one, other = (saved_model.load_file(end / f"{name}.safetensors") for end in ends)
        assert all(torch.equal(one[key], other[key]) for key in one) and one.keys() == other.keys()


def test_a_checkpoint_without_a_critic_is_refused(tmp_path):
    plain = replace(demo(steps=1), advantage="grpo", critic=CriticConfig())
    run(tmp_path / "plain", plain)
    config = demo(steps=2)
    opened = Run.open(tmp_path / "new", asdict(config), str(tmp_path / "plain"))
    with pytest.raises(UserError, match="critic-weights"):
        asyncio.run(train(Rollouts.open(config), opened, Nobody()))
    opened.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"advantage": "grpo"}, "has no critic"),
        ({"outcome_share": 0.8}, "step rewards"),
        ({"negative_weight": 0.5}, "negative weights"),
        ({"rollout": RolloutConfig(tasks=4, n=2, refills=1)}, "refills"),
        ({"critic": CriticConfig(warmup=1000)}, "only the critic"),
    ],
)
def test_settings_without_sense_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        demo(**changes)


@pytest.mark.parametrize(
    "changes", [{"gamma": 1.1}, {"lam": -0.1}, {"lr": 0}, {"cliprange_value": 0}, {"warmup": -1}]
)
def test_numbers_without_sense_are_refused(changes):
    with pytest.raises(UserError, match=next(iter(changes))):
        CriticConfig(**changes)

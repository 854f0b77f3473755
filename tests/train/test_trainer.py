"""The trainer: what is trained, how many steps it takes, and what it survives."""

from __future__ import annotations

import asyncio
import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.advantages import grpo
from recollect.config.engine import LoraConfig, LossConfig, OptimConfig
from recollect.models.model import LoadedModel
from recollect.sampler.dense import LocalPolicy
from recollect.samples import make_samples
from recollect.train.optimiser import learning_rate
from recollect.train.predictions import Predictions
from recollect.train.trainer import Trainer, split_by_group
from recollect.types import Context, Episode, Failure, Sample, Sampling, Task, Turn
from tests.support.plain import make_model, random_samples, sample

NO_KL = LossConfig(kl_coef=0.0)
FAST = OptimConfig(lr=1e-2, warmup_steps=0)
CPU = torch.device("cpu")


@pytest.fixture
def model(tmp_path) -> LoadedModel:
    return make_model(tmp_path)


def weights(model: LoadedModel) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.network.named_parameters()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def episode(rng: np.random.Generator, rollout: int = 0) -> Episode:
    """Make an episode of several contexts, each with prompts and tool results between its turns."""
    contexts = []
    for number in range(rng.integers(1, 4)):
        context = Context("memory", trainable=number != 2)
        for _ in range(rng.integers(1, 4)):
            context.ids += rng.integers(0, 3, rng.integers(1, 6)).tolist()
            reply = tuple(rng.integers(0, 3, rng.integers(1, 5)).tolist())
            context.turns.append(Turn(len(context.ids), reply, (-1.0,) * len(reply), "stop"))
            context.ids += reply
        context.ids += rng.integers(0, 3, rng.integers(0, 3)).tolist()
        contexts.append(context)
    return Episode(Task("t", (), ()), rollout, contexts, reward=float(rng.random()))


def groups(seed: int) -> list[list[Episode]]:
    rng = np.random.default_rng(seed)
    return [[episode(rng, rollout) for rollout in range(3)] for _ in range(2)]


def failed(rng: np.random.Generator) -> Episode:
    broken = episode(rng)
    broken.reward, broken.failure = None, Failure("policy", "Timeout", "too slow")
    return broken


# --- what is trained ------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_every_sampled_token_is_trained_once_and_nothing_else(seed):
    batch = groups(seed)
    samples = make_samples(batch, grpo)
    asked = Predictions.of(samples, CPU, share=True)
    flat = asked.packed.ids.numpy()
    contexts = [c for group in batch for e in group for c in e.contexts if c.trainable]
    expected = [(c.ids[:depth], c.ids[depth]) for c in contexts for depth in sampled(c)]
    at_T = asked.context_C[asked.which_P][asked.prediction_T].numpy()
    token_T = asked.token_P[asked.prediction_T].tolist()
    paths = {int(i[-1]): flat[i].tolist() for row in asked.packed.index for i in prefixes(row)}
    assert [(paths[at], t) for at, t in zip(at_T.tolist(), token_T, strict=True)] == expected
    assert len(set(zip(at_T.tolist(), token_T, strict=True))) == len(asked.token_P)


def sampled(context: Context) -> list[int]:
    return [depth for turn in context.turns for depth in range(turn.start, turn.end)]


def prefixes(row: np.ndarray) -> list[np.ndarray]:
    return [row[: n + 1] for n in range(len(row))]


def test_samples_of_an_episode_share_its_advantage():
    samples = make_samples(groups(1), grpo)
    for number in {s.episode for s in samples}:
        own = [s for s in samples if s.episode == number]
        assert len({float(a) for s in own for a in s.advantages[s.trained]}) == 1
        assert all((s.advantages[~s.trained] == 0).all() for s in own)


def test_failed_episodes_and_pads_change_nothing(model):
    start = weights(model)
    batch = groups(2)
    Trainer(model, NO_KL, FAST, updates_per_step=2).update(make_samples(batch, grpo))
    expected = weights(model)
    assert not same(start, expected)

    rng = np.random.default_rng(9)
    for group in batch:
        group.insert(1, failed(rng))
    samples = make_samples(batch, grpo)
    pads = [
        sample([1, 2, 1], [], 0.0, group=s.group, episode=-1 - i) for i, s in enumerate(samples)
    ]
    model.network.load_state_dict(start, strict=False)
    Trainer(model, NO_KL, FAST, updates_per_step=2).update([*samples, *pads])
    assert same(weights(model), expected)


def test_zero_advantage_costs_nothing_but_counts(model):
    start = weights(model)
    samples = [s for s in random_samples(1) if s.advantages.any()][:3]
    idle = sample([2, 2, 0, 1, 2, 1, 0, 0], [3, 4, 5, 6, 7], 0.0)
    trainer = Trainer(model, NO_KL, FAST)
    with_idle = trainer.update([*samples, idle])
    model.network.load_state_dict(start, strict=False)
    alone = Trainer(model, NO_KL, FAST).update(samples)
    assert with_idle["tokens/packed"] == alone["tokens/packed"]
    tokens = sum(int(s.trained.sum()) for s in samples)
    assert with_idle["train/loss"] == pytest.approx(alone["train/loss"] * tokens / (tokens + 5))
    # With a KL term the same sample does pull.
    kl = Trainer(model, LossConfig(kl_coef=0.1), FAST).update([*samples, idle])
    assert kl["tokens/packed"] > alone["tokens/packed"]


def test_a_first_token_cannot_be_trained(model):
    with pytest.raises(ValueError, match="first token"):
        Trainer(model, NO_KL, FAST).update([sample([1, 2], [0], 1.0)])


# --- steps ----------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 6), max_size=30), st.integers(1, 5))
def test_split_keeps_groups_whole_and_the_count_fixed(numbers, parts):
    samples = [sample([1, 2], [1], 1.0, group=g) for g in numbers]
    split = split_by_group(samples, parts)
    assert len(split) == parts
    assert sorted(i for part in split for i in part) == list(range(len(samples)))
    where = {(samples[i].group, p) for p, part in enumerate(split) for i in part}
    sizes = [sum(place == p for _, place in where) for p in range(parts)]
    assert len(where) == len(set(numbers))
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("count", [4, 9, 30])
def test_updates_are_fixed_however_many_samples(model, count):
    trainer = Trainer(model, NO_KL, FAST, updates_per_step=4, token_budget=30)
    samples = random_samples(4, count)
    for number, s in enumerate(samples):
        object.__setattr__(s, "group", number % 4)
        s.advantages[s.trained] = 1.0
    report = trainer.update(samples)
    assert trainer.optimiser.updates == report["train/updates"] == 4
    assert {int(v["step"]) for v in trainer.optimiser.adam.state.values()} == {4}


def test_fewer_groups_than_updates_leave_empty_ones(model):
    trainer = Trainer(model, NO_KL, FAST, updates_per_step=3)
    report = trainer.update([sample([1, 2, 0], [1, 2], 1.0, group=7)])
    assert trainer.optimiser.updates == 3
    assert report["train/updates_empty"] == 2


@pytest.mark.parametrize("samples", [[], [sample([1, 2], [], 0.0)], [sample([1, 2], [1], 0.0)]])
def test_nothing_to_learn_from_moves_nothing(model, samples):
    start = weights(model)
    trainer = Trainer(model, NO_KL, FAST, updates_per_step=2)
    trainer.update([sample([1, 2, 0], [1, 2], 1.0)])  # momentum that must not act
    start = weights(model)
    report = trainer.update(samples)
    assert same(weights(model), start)
    assert trainer.optimiser.updates == 4
    assert report["train/updates_empty"] == 2
    assert report["train/grad_norm"] == 0.0
    assert "train/mismatch" not in report  # nothing was computed that could differ
    assert all(np.isfinite(value) for value in report.values())


def test_a_non_finite_gradient_is_skipped_and_counted(model):
    trainer = Trainer(model, NO_KL, FAST)
    start = weights(model)
    report = trainer.update([sample([1, 2, 0], [1, 2], float("nan"))])
    assert report["train/updates_skipped"] == 1
    assert same(weights(model), start)
    assert trainer.optimiser.updates == 1
    report = trainer.update([sample([1, 2, 0], [1, 2], 1.0)])
    assert report["train/updates_skipped"] == 0
    assert np.isfinite(report["train/grad_norm"])
    assert not same(weights(model), start)


def test_warm_up_is_linear_then_constant(model):
    optim = OptimConfig(lr=0.4, warmup_steps=4)
    rates = [learning_rate(optim, update) for update in range(6)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
    assert learning_rate(OptimConfig(lr=0.4, warmup_steps=0), 0) == 0.4
    trainer = Trainer(model, NO_KL, optim, updates_per_step=2)
    seen = [trainer.update(random_samples(1))["train/lr"] for _ in range(3)]
    assert seen == pytest.approx([0.1, 0.3, 0.4])


def test_the_gradient_is_clipped(model):
    """Adam's first step is blind to size, but its first moment is a tenth of the gradient."""
    trainer = Trainer(model, NO_KL, OptimConfig(lr=0.0, clip_norm=0.25))
    report = trainer.update([sample([1, 2, 0], [1, 2], 50.0, logprobs=-6.0)])
    assert report["train/grad_norm"] > 0.25
    tensors, _ = trainer.optimiser.state()
    moments = [t for name, t in tensors.items() if name.endswith("/exp_avg")]
    assert float(torch.stack([m.norm() for m in moments]).norm()) == pytest.approx(0.025, rel=1e-3)


def test_a_resumed_trainer_goes_on_bit_for_bit(model, tmp_path):
    trainer = Trainer(model, LossConfig(kl_coef=0.01), OptimConfig(lr=1e-3), updates_per_step=2)
    batches = [random_samples(seed) for seed in range(4)]
    for batch in batches[:2]:
        trainer.update(batch)
    tensors, counters = copy.deepcopy(trainer.optimiser.state())
    middle = weights(model)
    reports = [trainer.update(batch) for batch in batches[2:]]
    end = weights(model)

    fresh = make_model(tmp_path)
    again = Trainer(fresh, LossConfig(kl_coef=0.01), OptimConfig(lr=1e-3), updates_per_step=2)
    fresh.network.load_state_dict(middle, strict=False)
    again.optimiser.restore(tensors, counters)
    assert [again.update(batch) for batch in batches[2:]] == reports
    assert same(weights(fresh), end)


# --- the reference, the sampler, learning ---------------------------------------------------------


def test_kl_is_zero_before_the_first_step(model):
    report = Trainer(model, LossConfig(), FAST).update(random_samples(3))
    assert report["train/kl"] == 0.0
    assert report["train/kl_loss"] == 0.0
    report = Trainer(model, LossConfig(), FAST, updates_per_step=2).update(random_samples(3))
    assert report["train/kl"] > 0.0


def test_lora_trains_adapters_against_their_base(tmp_path, model):
    base = make_model(tmp_path / "base")
    lora = make_model(tmp_path / "base", lora=LoraConfig(rank=2))
    before = weights(lora)
    trainer = Trainer(lora, LossConfig(kl_coef=0.1), OptimConfig(lr=0.1, warmup_steps=0))
    first = trainer.update(random_samples(3))
    assert first["train/kl"] == 0.0
    after = weights(lora)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert all("lora_" in name for name in moved)
    assert trainer.update(random_samples(3))["train/kl"] > 0.0

    asked = Predictions.of(random_samples(3), CPU, share=True)
    with torch.no_grad():
        plain, now = asked.logprobs(base, 1.0), asked.logprobs(lora, 1.0)
        with trainer._reference.use() as reference:
            assert torch.equal(asked.logprobs(reference, 1.0), plain)
        assert torch.equal(asked.logprobs(lora, 1.0), now)
        assert not torch.allclose(now, plain)
    assert trainer.model.trainable_parameters()


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_sampler_and_trainer_agree_on_logprobs(model, temperature):
    async def rollouts() -> list[Sample]:
        policy = LocalPolicy(model)
        prompts = [[1, 2, 3], [1, 2, 4, 4], [9]] * 3
        sampling = [Sampling(8, temperature, seed=seed) for seed in range(len(prompts))]
        jobs = [policy.sample(p, s) for p, s in zip(prompts, sampling, strict=True)]
        samples = []
        for prompt, done in zip(prompts, await asyncio.gather(*jobs), strict=True):
            ids = [*prompt, *done.token_ids]
            logprobs = np.array([0.0] * len(prompt) + list(done.logprobs))
            trained = range(len(prompt), len(ids))
            samples.append(sample(ids, trained, 1.0, logprobs=logprobs))
        return samples

    samples = asyncio.run(rollouts())
    report = Trainer(model, NO_KL, FAST, temperature=temperature).update(samples)
    assert report["train/mismatch"] < 1e-8
    assert report["train/mismatch_ratio_max"] == pytest.approx(1.0, abs=1e-4)
    wrong = Trainer(model, NO_KL, FAST, temperature=temperature * 2).update(samples)
    assert wrong["train/mismatch"] > 1e-3


def test_rewarded_tokens_become_likely(model):
    asked = Predictions.of([sample(ids, [2, 3], 1.0) for ids in TWO], CPU, share=True)

    def logprobs() -> np.ndarray:
        with torch.no_grad():
            return asked.logprobs(model, 1.0).numpy().reshape(2, 2)

    before = logprobs()
    samples = [
        sample(ids, [2, 3], advantage, logprobs=np.array([0.0, 0.0, *own]))
        for ids, advantage, own in zip(TWO, (1.0, -1.0), before, strict=True)
    ]
    Trainer(model, NO_KL, OptimConfig(lr=1e-4, warmup_steps=0)).update(samples)
    better, worse = logprobs().sum(1) - before.sum(1)
    assert better > 0 > worse


TWO = [[5, 6, 7, 8], [5, 6, 9, 8]]

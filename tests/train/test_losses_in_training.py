"""Every loss through the trainer: against plain autograd, whatever the micro-batches, learning."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from recollect.config.engine import LoraConfig, LossConfig, OptimConfig
from recollect.models.model import LoadedModel
from recollect.train.predictions import Predictions
from recollect.train.trainer import Trainer
from recollect.types import Sample
from tests.support.plain import (
    gradients,
    make_model,
    plain_logprobs,
    plain_model,
    random_samples,
    relative_error,
    sample,
)
from tests.train.test_equivalence import gradient_of, still

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> tuple[LoadedModel, torch.nn.Module]:
    folder = tmp_path_factory.mktemp("llama")
    return make_model(folder), plain_model(folder)


def batch(plain: torch.nn.Module, seed: int = 4) -> list[Sample]:
    """Draw samples that a policy near the trained one drew: few ratios are clipped.

    All samples of an episode have one advantage, but for one that has none.
    """
    rng = np.random.default_rng(seed)
    samples = random_samples(seed)
    for row in samples:
        with torch.no_grad():
            now = plain_logprobs(plain, row, 1.0).numpy()
        near = now + rng.normal(0.0, 0.2, len(now))
        row.logprobs[1:] = np.where(row.trained[1:], near, 0.0)
        row.advantages[row.trained] = (-1.0) ** row.episode * (1 + row.episode)
    samples[0].advantages[:] = 0.0
    return samples


def plain_gspo(plain: torch.nn.Module, samples: list[Sample], low: float, high: float):
    """Sum over episodes: tokens that learn times the clipped ratio of the episode, over T."""
    total = sum(int(s.trained.sum()) for s in samples)
    value = torch.zeros((), dtype=torch.float64)
    for number in {s.episode for s in samples}:
        own = [s for s in samples if s.episode == number]
        log_ratio = torch.cat(
            [(plain_logprobs(plain, s, 1.0) - torch.from_numpy(s.logprobs[1:]))[s.trained[1:]]
             for s in own]
        )  # fmt: skip
        with_mean = log_ratio.mean().exp()
        clipped = with_mean.clamp(1 - low, 1 + high)
        for s in own:
            advantage = float(s.advantages[s.trained][0])
            pg = torch.maximum(-with_mean * advantage, -clipped * advantage)
            value = value + int(s.trained.sum()) * pg / total
    return value


@pytest.mark.parametrize("budget", [20, 1 << 14])
def test_gspo_by_episode_spans_micro_batches(pair, budget):
    model, plain = pair
    samples = batch(plain)
    samples[0].advantages[samples[0].trained] = samples[1].advantages.max()  # one per episode
    config = LossConfig(kind="gspo", scope="episode", kl_coef=0.0, clip_low=0.05, clip_high=0.05)
    ours, report = gradient_of(still(model, config, token_budget=budget), samples)
    plain.zero_grad()
    value = plain_gspo(plain, samples, 0.05, 0.05)
    value.backward()
    assert 0 < report["train/clip_low"] + report["train/clip_high"] < 1
    assert report["train/loss"] == pytest.approx(float(value.detach()), rel=1e-5)
    assert relative_error(ours, gradients(plain)) < 1e-5


KINDS = {
    "gspo_turn": LossConfig(kind="gspo", scope="turn", kl_coef=0.0),
    "gspo_context": LossConfig(kind="gspo", scope="context", kl_coef=0.0),
    "gspo_episode": LossConfig(kind="gspo", scope="episode", kl_coef=0.0),
    "cispo": LossConfig(kind="cispo", kl_coef=0.0),
    "tis": LossConfig(tis_cap=1.2, kl_coef=0.0),
    "gspo_tis": LossConfig(kind="gspo", scope="episode", tis_cap=1.2, kl_coef=0.0),
    "entropy": LossConfig(entropy_coef=0.3, kl_coef=0.0),
    "k2": LossConfig(kl="k2", kl_coef=0.1),
}
by_kind = pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)


@by_kind
def test_micro_batches_and_shared_prefixes_change_nothing(pair, config):
    model, plain = pair
    samples = batch(plain)
    whole, report = gradient_of(still(model, config, share=False), samples)
    cut, cut_report = gradient_of(still(model, config, token_budget=15), samples)
    assert relative_error(cut, whole) < 1e-5
    for name in ("train/loss", "train/ratio", "train/clip_high", "train/entropy"):
        assert cut_report[name] == pytest.approx(report[name], rel=1e-4, abs=1e-6)


def test_gspo_with_tis_counts_the_samplers_distance_once(pair):
    """A batch used once is held against the present weights, so every scope's ratios are 1."""
    model, plain = pair
    samples = batch(plain)
    found = {}
    for scope in ("turn", "context", "episode"):
        config = LossConfig(kind="gspo", scope=scope, tis_cap=1.2, kl_coef=0.0)
        found[scope] = gradient_of(still(model, config, token_budget=15), samples)
    for own, report in found.values():
        assert relative_error(own, found["turn"][0]) < 1e-5
        assert report["train/loss"] == pytest.approx(found["turn"][1]["train/loss"], rel=1e-5)


def test_local_samples_have_denominators_of_their_own(pair):
    """L = L_whole + weight L_local: more that is run again dilutes nothing."""
    model, plain = pair
    samples = batch(plain)
    whole, local = samples[:4], [dataclasses.replace(s, local=True) for s in samples[4:]]
    config = LossConfig(kl_coef=0.0)
    both, report = gradient_of(still(model, config, local_weight=0.5), [*whole, *local])
    one, first = gradient_of(still(model, config), whole)
    other, second = gradient_of(still(model, config), local)
    expected = {name: one[name] + 0.5 * other[name] for name in one}
    assert relative_error(both, expected) < 1e-5
    loss = first["train/loss"] + 0.5 * second["train/loss"]
    assert report["train/loss"] == pytest.approx(loss, rel=1e-5)


def test_entropy_is_that_of_the_whole_distribution(pair):
    model, plain = pair
    samples = [s for s in batch(plain) if s.trained.any()]
    for s in samples:
        s.advantages[:] = 0.0  # nothing else pulls
    config = LossConfig(entropy_coef=0.3, kl_coef=0.0)
    ours, report = gradient_of(still(model, config, temperature=0.7), samples)
    plain.zero_grad()
    total = torch.zeros((), dtype=torch.float64)
    for s in samples:
        logprobs = (plain(torch.from_numpy(s.token_ids)[None]).logits[0] / 0.7).log_softmax(-1)
        total = total - (logprobs.exp() * logprobs).sum(-1)[:-1][s.trained[1:]].sum()
    mean = total / sum(int(s.trained.sum()) for s in samples)
    (-0.3 * mean).backward()
    assert report["train/entropy"] == pytest.approx(float(mean.detach()), rel=1e-5)
    assert relative_error(ours, gradients(plain)) < 1e-5


def test_later_updates_of_a_batch_measure_against_its_start(tmp_path):
    """With a sampler that is 1.3 times off, TIS clips nothing that has not moved."""
    model = make_model(tmp_path)
    plain = plain_model(tmp_path)
    samples = random_samples(2, groups=2)
    for s in samples:
        with torch.no_grad():
            now = plain_logprobs(plain, s, 1.0).numpy()
        s.logprobs[1:] = np.where(s.trained[1:], now - np.log(1.3), 0.0)
        s.advantages[s.trained] = 1.0
    still = OptimConfig(lr=0.0, weight_decay=0.0)
    off = Trainer(model, LossConfig(kl_coef=0.0), still, updates_per_step=2).update(samples)
    assert off["train/clip_high"] == 1.0
    config = LossConfig(kl_coef=0.0, tis_cap=2.0)
    on = Trainer(model, config, still, updates_per_step=2).update(samples)
    assert on["train/clip_high"] == 0.0
    assert on["train/tis_weight"] == pytest.approx(1.3, rel=1e-4)
    moving = OptimConfig(lr=1e-2, warmup_steps=0)
    moved = Trainer(model, config, moving, updates_per_step=2).update(samples)
    assert moved["train/tis_weight"] == pytest.approx(1.3, rel=1e-4)  # of the start, not of now
    assert moved["train/mismatch_ratio_max"] == pytest.approx(1.3, rel=1e-4)
    assert moved["train/ratio_max"] > 1.31


def test_divergence_of_a_sample_is_its_tokens_sum(tmp_path):
    model = make_model(tmp_path)
    plain = plain_model(tmp_path)
    trainer = Trainer(model, LossConfig(kl_coef=0.5, kl="k1", kl_in="reward"), OptimConfig())
    samples = [*random_samples(6, count=5), sample([1, 2], [], 0.0)]
    expected = []
    for s in samples:
        with torch.no_grad():
            reference = plain_logprobs(plain, s, 1.0).numpy()
        expected.append(float((s.logprobs[1:] - reference)[s.trained[1:]].sum()))
    assert trainer.divergences(samples) == pytest.approx(expected, rel=1e-4, abs=1e-4)
    # Charged there, it is in no loss, and what has no advantage has no gradient.
    assert "train/kl" not in trainer.update(samples)
    assert trainer.update([sample([1, 2], [1], 0.0)])["train/updates_empty"] == 1


@by_kind
def test_rewarded_tokens_become_likely(tmp_path, config):
    model = make_model(tmp_path)
    rows = [[5, 6, 7, 8], [5, 6, 9, 8]]
    asked = Predictions.of([sample(ids, [2, 3], 1.0) for ids in rows], CPU, share=True)

    def logprobs() -> np.ndarray:
        with torch.no_grad():
            return asked.logprobs(model, 1.0).numpy().reshape(2, 2)

    before = logprobs()
    samples = [
        sample(ids, [2, 3], advantage, episode=i, logprobs=np.array([0.0, 0.0, *own]))
        for i, (ids, advantage, own) in enumerate(zip(rows, (1.0, -1.0), before, strict=True))
    ]
    Trainer(model, config, OptimConfig(lr=1e-4, warmup_steps=0)).update(samples)
    better, worse = logprobs().sum(1) - before.sum(1)
    assert better > 0 > worse


# --- what is not computed -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "more", "passes"),
    [
        ({"kl_coef": 0.0}, {}, 1),  # the sampler's logprobs are the old ones, and no reference
        ({"kl_coef": 0.1}, {}, 2),
        ({"kl_coef": 0.0}, {"updates_per_step": 2}, 2),
        ({"kl_coef": 0.0, "tis_cap": 2.0}, {}, 1),
        ({"kl_coef": 0.0, "tis_cap": 2.0}, {"updates_per_step": 2}, 1 + 2),
        ({"kl_coef": 0.0}, {"epochs": 2}, 1 + 2),  # used again: the trainer's own, computed once
        ({"kl_coef": 0.1}, {"epochs": 3, "updates_per_step": 2}, 1 + 3 * 2 * 2),
    ],
)
@pytest.mark.parametrize("rank", [0, 2])
def test_only_needed_passes_are_spent(tmp_path, config, more, passes, rank):
    model = make_model(tmp_path, lora=LoraConfig(rank=rank))
    trainer = Trainer(model, LossConfig(**config), OptimConfig(warmup_steps=0), **more)
    samples = [
        sample([1, 2, i, 3], [2, 3], 1.0 if i else -1.0, group=i, episode=i) for i in range(2)
    ]
    count = 0

    def seen(*_: object) -> None:
        nonlocal count
        count += 1

    trained = model.network.get_decoder()
    networks = [trained]
    if trainer._reference:
        with trainer._reference.use() as reference:
            assert (reference is model) == bool(rank)  # adapters: the base is the reference
            if not rank:
                networks.append(reference.network.get_decoder())
    for network in networks:
        network.register_forward_hook(seen)
    report = trainer.update(samples)
    assert count == passes
    assert report["train/updates"] == more.get("epochs", 1) * more.get("updates_per_step", 1)
    assert (trainer._reference is None) == (config["kl_coef"] == 0)


def test_a_batch_without_differences_costs_no_pass(tmp_path):
    model = make_model(tmp_path)
    trainer = Trainer(model, LossConfig(kl_coef=0.0), OptimConfig())
    model.network.get_decoder().register_forward_hook(lambda *_: pytest.fail("computed"))
    report = trainer.update([sample([1, 2, i], [1, 2], 0.0, group=i) for i in range(3)])
    assert report["train/updates_empty"] == 1 and report["tokens/packed"] == 0


def test_a_batch_used_again_is_held_against_the_weights_before_it(tmp_path):
    """Where the sampler is off by 1.3, using a batch once clips it; using it again does not."""
    model, plain = make_model(tmp_path), plain_model(tmp_path)
    samples = random_samples(3)
    for s in samples:
        with torch.no_grad():
            now = plain_logprobs(plain, s, 1.0).numpy()
        s.logprobs[1:] = np.where(s.trained[1:], now - np.log(1.3), 0.0)
        s.advantages[s.trained] = 1.0
    still = OptimConfig(lr=0.0, weight_decay=0.0)
    once = Trainer(model, LossConfig(kl_coef=0.0), still).update(samples)
    again = Trainer(model, LossConfig(kl_coef=0.0), still, epochs=2).update(samples)
    assert once["train/clip_high"] == 1.0 and again["train/clip_high"] == 0.0
    assert again["train/mismatch_ratio_max"] == pytest.approx(1.3, rel=1e-4)  # logged all the same
    assert again["train/pg_loss"] == pytest.approx(-1.0, rel=1e-4)
    moving = OptimConfig(lr=0.05, warmup_steps=0, weight_decay=0.0)
    moved = Trainer(model, LossConfig(kl_coef=0.0), moving, epochs=4).update(samples)
    assert moved["train/clip_high"] > 0.0

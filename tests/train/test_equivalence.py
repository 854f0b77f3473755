"""Packed tries against one row per sample: the same loss, the same gradient."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.optim.optimizer import register_optimizer_step_pre_hook

from recollect.config.engine import LossConfig, OptimConfig
from recollect.models.model import LoadedModel
from recollect.models.trie.pack import Bucket
from recollect.train import predictions
from recollect.train.trainer import Trainer
from recollect.types import Sample
from tests.support.plain import (
    KINDS,
    gradients,
    make_model,
    plain_loss,
    plain_model,
    random_samples,
    relative_error,
)

NO_KL = LossConfig(kl_coef=0.0)
SEEDS = st.integers(0, 2**32 - 1)
quick = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module", params=list(KINDS))
def pair(request, tmp_path_factory) -> tuple[LoadedModel, torch.nn.Module]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    return make_model(folder, request.param), plain_model(folder)


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> LoadedModel:
    return make_model(tmp_path_factory.mktemp("llama"))


def still(model: LoadedModel, config: LossConfig = NO_KL, **more) -> Trainer:
    """Make a trainer whose updates move nothing and clip nothing."""
    optim = OptimConfig(lr=0.0, weight_decay=0.0, clip_norm=float("inf"))
    return Trainer(model, config, optim, **more)


def gradient_of(
    trainer: Trainer, samples: list[Sample]
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Return the gradient the optimiser saw in one update, and the update's report."""
    seen: dict[str, torch.Tensor] = {}

    def look(_optimiser, _args, _kwargs) -> None:
        seen.update(gradients(trainer.model.network))

    handle = register_optimizer_step_pre_hook(look)
    report = trainer.update(samples)
    handle.remove()
    return seen, report


def leave_one_a_gradient(samples: list[Sample]) -> None:
    """Give the first sample an advantage, and ratios below one: no clipping takes it away."""
    samples[0].advantages[samples[0].trained] = 1.0
    samples[0].logprobs[samples[0].trained] = 0.0


def plain_gradient(
    plain: torch.nn.Module, samples: list[Sample], config: LossConfig, weight, **more
) -> tuple[dict[str, torch.Tensor], float]:
    plain.zero_grad()
    value = plain_loss(plain, samples, config, weight, **more)
    value.backward()
    return gradients(plain), float(value.detach())


def one_per_token(samples: list[Sample]):
    total = sum(int(s.trained.sum()) for s in samples)
    return lambda _row: 1 / total


@quick
@given(seed=SEEDS)
def test_packed_equals_row_by_row(pair, seed):
    model, plain = pair
    samples = random_samples(seed)
    leave_one_a_gradient(samples)
    ours, report = gradient_of(still(model), samples)
    expected, value = plain_gradient(plain, samples, NO_KL, one_per_token(samples))
    assert relative_error(ours, expected) < 1e-5
    assert report["train/loss"] == pytest.approx(value, rel=1e-5, abs=1e-5)
    assert report["tokens/packed"] < sum(len(s.token_ids) for s in samples)


@quick
@given(seed=SEEDS, budget=st.integers(1, 200))
def test_any_token_budget_gives_the_same_gradient(llama, seed, budget):
    samples = random_samples(seed)
    leave_one_a_gradient(samples)
    whole, report = gradient_of(still(llama), samples)
    cut, cut_report = gradient_of(still(llama, token_budget=budget), samples)
    assert relative_error(cut, whole) < 1e-5
    for name in (
        "train/loss",
        "train/ratio",
        "train/ratio_max",
        "train/mismatch",
        "train/clip_low",
    ):
        assert cut_report[name] == pytest.approx(report[name], rel=1e-5, abs=1e-6)


def test_unshared_rows_give_the_same_gradient(llama):
    samples = random_samples(3)
    shared, report = gradient_of(still(llama), samples)
    rows, rows_report = gradient_of(still(llama, share=False), samples)
    assert relative_error(shared, rows) < 1e-5
    assert rows_report["tokens/packed"] > report["tokens/packed"]


def test_reference_and_temperature(pair):
    model, start = pair
    config = LossConfig(kl_coef=0.3)
    made_before = still(model, config, temperature=0.7)
    moved, before = copy.deepcopy(start), copy.deepcopy(model.network.state_dict())
    torch.manual_seed(0)
    with torch.no_grad():
        for ours, theirs in zip(model.network.parameters(), moved.parameters(), strict=True):
            ours += 0.01 * torch.randn_like(ours)
            theirs.copy_(ours)
    samples = random_samples(5)
    ours, report = gradient_of(made_before, samples)
    expected, value = plain_gradient(
        moved, samples, config, one_per_token(samples), reference=start, temperature=0.7
    )
    model.network.load_state_dict(before)
    assert relative_error(ours, expected) < 1e-5
    assert report["train/loss"] == pytest.approx(value, rel=1e-5)
    assert report["train/kl"] > 0


def test_chunked_logits_change_nothing(llama, monkeypatch):
    samples = random_samples(6)
    whole, report = gradient_of(still(llama), samples)
    monkeypatch.setattr(predictions, "WHOLE", 0)
    monkeypatch.setattr(predictions, "CHUNK", 3)
    chunked, chunked_report = gradient_of(still(llama), samples)
    assert relative_error(chunked, whole) < 1e-5
    assert chunked_report["train/loss"] == pytest.approx(report["train/loss"], rel=1e-5)


def test_recomputation_changes_nothing_and_recomputes(tmp_path, llama):
    samples = random_samples(7)
    expected, _ = gradient_of(still(llama), samples)
    model = make_model(tmp_path, recompute=1.0)
    calls = []
    first = model.network.get_decoder().layers[0].input_layernorm
    first.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    ours, _ = gradient_of(still(model), samples)
    assert relative_error(ours, expected) < 1e-6
    assert len(calls) == 2  # once forward, once more on the way back
    assert not any(module.training for module in model.network.modules())


@pytest.mark.parametrize(
    ("aggregate", "weight"),
    [
        ("sequence_mean_token_sum", lambda row, rows: 1 / len(rows)),
        ("sequence_mean_token_mean", lambda row, rows: 1 / len(rows) / row.trained.sum()),
        (
            "episode_mean",
            lambda row, rows: (
                1
                / len({r.episode for r in rows})
                / sum(r.trained.sum() for r in rows if r.episode == row.episode)
            ),
        ),
        ("constant_length", lambda row, rows: 1 / len(rows) / 7),
    ],
)
def test_aggregations(pair, aggregate, weight):
    model, plain = pair
    samples = random_samples(8)
    config = LossConfig(kl_coef=0.0, aggregate=aggregate, length=7)
    ours, report = gradient_of(still(model, config, token_budget=40), samples)
    expected, value = plain_gradient(plain, samples, NO_KL, lambda row: float(weight(row, samples)))
    assert relative_error(ours, expected) < 1e-5
    assert report["train/loss"] == pytest.approx(value, rel=1e-4)


def test_a_broken_mask_would_be_noticed(llama, monkeypatch):
    """The comparison can fail: let every query see one key less of its path."""
    samples = random_samples(3)
    right, _ = gradient_of(still(llama), samples)
    mask = Bucket.mask
    monkeypatch.setattr(Bucket, "mask", lambda self, window, device: mask(self, 3, device))
    wrong, _ = gradient_of(still(llama), samples)
    assert relative_error(wrong, right) > 1e-3

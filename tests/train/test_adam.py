"""AdamW with its averages elsewhere, and of weights in half precision, against torch's."""

from __future__ import annotations

import pytest
import torch

from recollect.config.engine import LossConfig, OptimConfig
from recollect.models.model import ModelConfig, load_model
from recollect.train import saved_model
from recollect.train.adam import RoamingAdamW
from recollect.train.rows import Row
from recollect.train.trainer import Trainer
from tests.support.tiny import tiny_model
from tests.train.test_trainer import random_samples

SETTINGS = dict(lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)


@pytest.mark.parametrize("on_host", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_gives_what_adamw_gives(on_host, dtype):
    ours = [torch.nn.Parameter(w.to(dtype)) for w in weights()]
    theirs = [torch.nn.Parameter(w.detach().float()) for w in ours]
    one = RoamingAdamW(ours, **SETTINGS, on_host=on_host)
    other = torch.optim.AdamW(theirs, foreach=False, **SETTINGS)
    generator = torch.Generator().manual_seed(1)
    for step in range(5):
        for group in (*one.param_groups, *other.param_groups):
            group["lr"] = 0.01 * (step + 1)
        for b in theirs:
            b.grad = torch.randn(b.shape, generator=generator)
        theirs[2].grad = None  # a weight that was not used keeps its averages
        one.apply({a: b.grad for a, b in zip(ours, theirs, strict=True) if b.grad is not None})
        other.step()
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b.to(dtype))
        expected = {k: v.tolist() for k, v in other.state[b].items()}
        if dtype != torch.float32 and expected:
            expected["original"] = b.tolist()
        assert {k: v.tolist() for k, v in one.state[a].items()} == expected
    assert not one.state[ours[2]]


def weights():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in ((3, 4), (5,), (2, 2))]


@pytest.fixture
def half(tmp_path):
    torch.set_num_threads(1)
    folder = str(tiny_model(tmp_path / "base"))
    return lambda: load_model(ModelConfig(folder, weights="bfloat16"))


def trained(model, updates: int, offload: bool = False) -> Trainer:
    optim = OptimConfig(lr=2e-5, warmup_steps=0, weight_decay=0.0, offload=offload)
    trainer = Trainer(model, LossConfig(kl_coef=0.0), optim, token_budget=40)
    for _ in range(updates):
        trainer.update(random_samples(8))
    return trainer


def test_updates_below_the_last_bit_of_a_half_weight_add_up(half):
    model = half()
    start = [p.detach().clone() for p in model.trainable_parameters()]
    trainer = trained(model, 12)
    assert {p.dtype for p in model.trainable_parameters()} == {torch.bfloat16}
    originals = [trainer.optimiser.adam.state[p]["original"] for p in model.trainable_parameters()]
    moved = stuck = 0
    for before, now, original in zip(start, model.trainable_parameters(), originals, strict=True):
        assert torch.equal(now, original.bfloat16())
        moved += int((original != before.float()).sum())
        stuck += int((now == before).sum())
    assert moved > 1000 and stuck > 1000  # the weights still show little of it


def test_gradients_of_half_weights_are_added_up_in_float32(half):
    model = half()
    trainer = trained(model, 0)
    sums = trainer.optimiser.gradients
    assert not sums
    with model.training():
        for _ in range(2):
            trainer._backward(rows())
    once = {p: total.clone() for p, total in trainer.optimiser.gradients.items()}
    assert {total.dtype for total in once.values()} == {torch.float32}
    assert all(p.grad is None for p in model.trainable_parameters())
    with model.training():
        for _ in range(2):
            trainer._backward(rows())
    for p, total in trainer.optimiser.gradients.items():
        torch.testing.assert_close(total, 2 * once[p])


def rows():
    return [Row(sample, 0.1) for sample in random_samples(4)]


@pytest.mark.parametrize("offload", [False, True])
def test_a_resumed_run_of_half_weights_equals_one_that_went_on(half, tmp_path, offload):
    whole = half()
    trained(whole, 5, offload)
    first = half()
    trainer = trained(first, 3, offload)
    (tmp_path / "saved").mkdir()
    saved_model.save(tmp_path / "saved", first, trainer)
    second = half()
    again = trained(second, 0, offload)
    saved_model.load(tmp_path / "saved", second, again)
    for _ in range(2):
        again.update(random_samples(8))
    for a, b in zip(whole.trainable_parameters(), second.trainable_parameters(), strict=True):
        assert torch.equal(a, b)

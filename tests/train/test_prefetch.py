"""Batches made ahead: drawn with the weights before the update, the same after a kill."""

from __future__ import annotations

import asyncio
import copy
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from recollect.config.engine import CriticConfig, LoraConfig, LossConfig, OptimConfig
from recollect.config.presets import preset
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.config.train import TrainConfig
from recollect.errors import UserError
from recollect.models.copies import Snapshot
from recollect.models.model import LoadedModel
from recollect.rollout import Group
from recollect.runs.checkpoints import PENDING, list_checkpoints
from recollect.runs.run import Run, read_metrics, without_times
from recollect.sampler.dense import LocalPolicy
from recollect.train import saved_model
from recollect.train.learner import Learner
from recollect.train.loop import train
from recollect.train.prefetch import Batches, read_groups
from recollect.train.rollouts import Rollouts
from tests.support.plain import make_model


class Nobody:
    def __getattr__(self, _name: str):
        return lambda *_args: None


def demo(ahead: int = 1, **changes) -> TrainConfig:
    settings = {
        "rollout": RolloutConfig(tasks=4, n=4, ahead=ahead),
        "val": ValidationConfig(tasks=2, before_training=False),
        "optim": OptimConfig(lr=2e-3, warmup_steps=0),
        "updates_per_step": 2,
        "test_freq": 2,
    }
    return replace(preset("demo"), **(settings | changes))


def run(folder: Path, config: TrainConfig) -> list[dict[str, float]]:
    opened = Run.open(folder, asdict(config), keep=config.keep)
    try:
        asyncio.run(train(Rollouts.open(config), opened, Nobody()))
    finally:
        opened.close()
    return [without_times(row) for row in read_metrics(folder)]


def killed(whole: Path, folder: Path, step: int) -> Path:
    """Make what a kill leaves behind: checkpoints up to a step, with the batch after it."""
    shutil.copytree(whole, folder)
    for later, path in list_checkpoints(folder / "checkpoints"):
        if later > step:
            shutil.rmtree(path)
    return folder


def drawn(groups: list[Group]) -> list[tuple[list[int], tuple[float, ...]]]:
    turns = [(c.ids, t) for g in groups for e in g for c in e.contexts for t in c.turns]
    return [(ids, tuple(map(float, turn.logprobs))) for ids, turn in turns]


def test_a_batch_is_drawn_with_the_weights_before_the_update(tmp_path):
    """Step by step as the settings mean it, without threads, copies or overlap."""
    config = demo(steps=3)
    found = run(tmp_path / "run", config)

    plain = Rollouts.open(replace(config, rollout=replace(config.rollout, ahead=0)))
    assert plain.roles.snapshot is None
    learner = Learner(plain)
    metrics = []

    async def by_hand() -> None:
        batch = await plain.generate(1, Nobody())
        for step in range(1, 4):
            coming = await plain.generate(step + 1, Nobody())  # before the weights move
            metrics.append(learner.learn(step, batch))
            batch = coming

    asyncio.run(by_hand())
    for row, expected in zip(found, metrics, strict=True):
        assert {name: row[name] for name in expected} == expected
    weights = saved_model.load_file(tmp_path / "run/checkpoints/step-000003/weights.safetensors")
    for name, parameter in plain.model.network.named_parameters():
        assert torch.equal(weights[name], parameter), name
    assert found[0]["train/mismatch"] < 1e-8 < 1e-4 < found[1]["train/mismatch"]


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({}, (1, 3)),
        ({"advantage": "gae", "critic": CriticConfig(lr=1e-3, warmup=1)}, (2,)),
        ({"loss": LossConfig(kl_coef=0.01), "epochs": 2}, (2,)),
    ],
    ids=["grpo", "gae", "kl"],
)
def test_killed_after_any_step_it_ends_the_same(tmp_path, changes, steps):
    last = max(steps) + 1
    config = demo(steps=last, save_freq=1, keep=9, **changes)
    whole = run(tmp_path / "whole", config)
    end = f"checkpoints/step-{last:06d}"
    assert not (tmp_path / "whole" / end / PENDING).exists()
    for step in steps:
        folder = killed(tmp_path / "whole", tmp_path / f"killed{step}", step)
        assert (folder / f"checkpoints/step-{step:06d}" / PENDING).exists()
        assert run(folder, config) == whole
        for path in sorted((folder / end).glob("*.safetensors")):
            one = saved_model.load_file(path)
            other = saved_model.load_file(tmp_path / "whole" / end / path.name)
            assert one.keys() == other.keys()
            assert all(torch.equal(one[name], other[name]) for name in one), path.name


def test_what_is_stored_reads_back_as_it_was(tmp_path):
    rollouts = Rollouts.open(demo(steps=2))

    async def make() -> list[Group]:
        batches = Batches(rollouts, Nobody())
        await batches.beside(1, lambda: None)
        await batches.settle()
        batches.save(tmp_path)
        return await batches.take(1)

    groups = asyncio.run(make())
    again = read_groups(tmp_path / PENDING)
    assert [len(group) for group in again] == [4] * 4
    assert drawn(again) == drawn(groups)
    assert [[e.reward for e in g] for g in again] == [[e.reward for e in g] for g in groups]


def test_a_run_on_policy_stores_and_copies_nothing(tmp_path):
    run(tmp_path / "run", demo(ahead=0, steps=2, save_freq=1, keep=9))
    assert not list((tmp_path / "run").rglob(PENDING))


class Keeping(LocalPolicy):
    """A sampler with its own copy of the weights, as GPUs like them: taken when it is reset."""

    def __init__(self, model: LoadedModel) -> None:
        self.source = model
        super().__init__(replace(model, network=copy.deepcopy(model.network)))

    def reset(self) -> None:
        super().reset()
        self.model.network.load_state_dict(self.source.network.state_dict())


@pytest.mark.parametrize("ahead", [0, 1])
def test_samplers_that_keep_copies_draw_with_the_weights_of_the_step(tmp_path, ahead):
    config = demo(ahead=ahead, steps=3, save_freq=1, keep=9)
    plain = run(tmp_path / "plain", config)

    def keeping(folder: Path, resume: str) -> list[dict[str, float]]:
        rollouts = Rollouts.open(config)
        (sampler,) = rollouts.roles.samplers
        own = Keeping(sampler.model)
        rollouts.roles.samplers[:] = [own]
        for role, model in rollouts.roles.models.items():
            rollouts.roles.models[role] = replace(model, policy=own)
        opened = Run.open(folder, asdict(config), resume, keep=config.keep)
        asyncio.run(train(rollouts, opened, Nobody()))
        opened.close()
        return [without_times(row) for row in read_metrics(folder)]

    assert keeping(tmp_path / "kept", "auto") == plain
    assert keeping(killed(tmp_path / "plain", tmp_path / "resumed", 2), "auto") == plain


def test_another_run_makes_its_own_batches(tmp_path):
    """Those that wait in a checkpoint were made by other settings, perhaps by other roles."""
    run(tmp_path / "first", demo(steps=2, save_freq=1, keep=9))
    source = tmp_path / "first/checkpoints/step-000001"
    assert (source / PENDING).exists()
    config = demo(steps=2, rollout=RolloutConfig(tasks=4, n=2, ahead=1))
    opened = Run.open(tmp_path / "second", asdict(config), str(source))
    asyncio.run(train(Rollouts.open(config), opened, Nobody()))
    opened.close()
    (row,) = read_metrics(tmp_path / "second")
    assert (row["step"], row["episodes/total"]) == (2, 8)


def test_a_batch_that_cannot_be_made_ends_the_run_with_its_last_step_saved(tmp_path):
    """What is learned from meanwhile is not lost."""
    config = demo(steps=4)
    rollouts = Rollouts.open(config)
    made = rollouts.generate

    async def generate(step: int, watcher: object) -> list[Group]:
        if step == 3:
            raise UserError("the server is gone", "start it")
        return await made(step, watcher)

    rollouts.generate = generate  # type: ignore[method-assign]
    opened = Run.open(tmp_path / "run", asdict(config))
    with pytest.raises(UserError, match="gone"):
        asyncio.run(train(rollouts, opened, Nobody()))
    opened.close()
    assert [row["step"] for row in read_metrics(tmp_path / "run")] == [1, 2]
    saved = tmp_path / "run/checkpoints/step-000002"
    assert saved.exists() and not (saved / PENDING).exists()
    run(tmp_path / "run", config)
    assert len(read_metrics(tmp_path / "run")) == 4


def test_an_update_that_fails_ends_the_run_and_the_batch(tmp_path):
    rollouts = Rollouts.open(demo(steps=4))

    async def fail() -> Batches:
        batches = Batches(rollouts, Nobody())
        with pytest.raises(ZeroDivisionError):
            await batches.beside(1, lambda: 1 // 0)
        await asyncio.wait([batches._next])
        assert batches._next.cancelled()

    asyncio.run(fail())


@pytest.mark.parametrize("rank", [0, 2])
def test_a_snapshot_stays_until_it_is_refreshed(tmp_path, rank):
    model = make_model(tmp_path, lora=LoraConfig(rank=rank))
    snapshot = Snapshot.of(model)
    trained = [p for p in model.network.parameters() if p.requires_grad]
    assert not any(p.requires_grad for p in snapshot.model.network.parameters())
    with torch.no_grad():
        for parameter in trained:
            parameter.add_(1.0)
    pairs = list(zip(model.network.parameters(), snapshot.model.network.parameters(), strict=True))
    assert sum(not torch.equal(*pair) for pair in pairs) == len(trained)
    shared = sum(one is other for one, other in pairs)
    assert shared == len(pairs) - len(trained) and bool(shared) == bool(rank)
    snapshot.refresh()
    assert all(torch.equal(*pair) for pair in pairs)


@pytest.mark.parametrize("ahead", [-1, 2])
def test_farther_ahead_is_refused(ahead):
    with pytest.raises(UserError, match="ahead"):
        RolloutConfig(ahead=ahead)

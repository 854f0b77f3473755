"""Two FSDP ranks and a reference model, killed and resumed; the embedded engine beside them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from recollect.config.engine import LossConfig, OptimConfig
from recollect.config.presets import DEMO_MODEL, preset
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.config.train import TrainConfig
from recollect.engines.verl.trainer.merge import KNOWN, merge
from recollect.runs.episodes import read_episodes
from recollect.runs.run import read_metrics
from recollect.train.learner import Learner
from recollect.train.rollouts import Rollouts
from tests.support.cluster import finish, kill_when, start

STEPS, UPDATES = 3, 2


class Silent:
    """Nobody watches."""

    def phase(self, name: str, done: int, total: int) -> None: ...


def settings(folder: Path) -> TrainConfig:
    return replace(
        preset("demo"),
        name="ranks",
        folder=folder,
        rollout=RolloutConfig(tasks=6, n=4),
        loss=LossConfig(kl_coef=0.02),
        # Adam makes as much of a gradient that is all rounding as of any other: with this epsilon,
        # which is far below those that matter, engines can be compared to the fifth digit.
        optim=OptimConfig(lr=2e-4, warmup_steps=0, eps=1e-6),
        updates_per_step=UPDATES,
        val=ValidationConfig(tasks=8, n=2, temperature=1.0),
        steps=STEPS,
        test_freq=1,
        save_freq=1,
        keep=STEPS,
    )


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> TrainConfig:
    """Run until step 1 is done, kill everything, and run to the end."""
    config = settings(tmp_path_factory.mktemp("cluster"))
    metrics = config.folder / config.name / "metrics.jsonl"
    process, log = start(config, ranks=2)
    kill_when(process, log, lambda: metrics.exists() and '"step": 1' in metrics.read_text())
    finish(*start(config, ranks=2))
    return config


@pytest.fixture(scope="module")
def folder(config: TrainConfig) -> Path:
    return config.folder / config.name


def test_a_killed_run_goes_on_and_leaves_one_line_for_every_step(folder):
    rows = read_metrics(folder)
    assert [row["step"] for row in rows] == list(range(STEPS + 1))
    assert all(row["episodes/total"] == 24 for row in rows[1:])
    assert all(row["val/n"] == 16 and row["val/failed"] == 0 for row in rows)
    names = {path.name for path in (folder / "episodes").iterdir()}
    assert names == {f"{kind}-{step:06d}.jsonl.gz" for kind, step in
                     [*(("train", s) for s in range(1, STEPS + 1)),
                      *(("val", s) for s in range(STEPS + 1))]}  # fmt: skip


def test_6_the_number_of_optimiser_steps_is_the_configured_one(folder):
    rows = read_metrics(folder)
    assert all(row["train/updates"] == UPDATES for row in rows[1:])
    assert rows[1]["samples/total"] == 24 * 4
    step = folder / "checkpoints" / f"global_step_{STEPS}" / "actor"
    with torch.serialization.safe_globals(KNOWN):
        saved = torch.load(step / "optim_world_size_2_rank_0.pt", weights_only=True)
    assert {int(state["step"]) for state in saved["state"].values()} == {STEPS * UPDATES}


def test_the_reference_holds_the_policy_back(folder):
    rows = read_metrics(folder)
    assert rows[1]["actor/kl_coef"] == 0.02
    assert rows[STEPS]["train/kl"] > 0


@pytest.fixture(scope="module")
def embedded(config):
    """The same step on the embedded engine: its groups, and the weights after it."""
    rollouts = Rollouts.open(config)
    groups = asyncio.run(rollouts.generate(1, Silent()))
    learned = Learner(rollouts).learn(1, groups)
    weights = {n: p.detach().clone() for n, p in rollouts.model.network.named_parameters()}
    return groups, weights, learned


def test_both_engines_sample_the_same(folder, embedded):
    ours = [e for group in embedded[0] for e in group]
    theirs = list(read_episodes(folder / "episodes" / "train-000001.jsonl.gz"))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.task.id, a.rollout, a.reward, a.answers) == (
            b.task.id, b.rollout, b.reward, b.answers
        )  # fmt: skip
        for one, other in zip(a.contexts, b.contexts, strict=True):
            assert one.ids == other.ids and one.stratum == other.stratum
            for turn, same in zip(one.turns, other.turns, strict=True):
                assert turn.start == same.start and turn.token_ids == same.token_ids
                assert np.allclose(turn.logprobs, same.logprobs, atol=1e-5)


def test_both_engines_have_the_same_weights_after_a_step(folder, embedded, tmp_path):
    merged = merge(folder / "checkpoints" / "global_step_1", tmp_path / "model")
    network = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32)
    before = AutoModelForCausalLM.from_pretrained(DEMO_MODEL, dtype=torch.float32)
    moved = 0.0
    old = dict(before.named_parameters())
    for name, weight in network.named_parameters():
        assert torch.allclose(weight, embedded[1][name], rtol=0, atol=1e-5), name
        moved = max(moved, float((weight - old[name]).abs().max()))
    assert moved > 1e-4  # not because nothing happened
    rows = read_metrics(folder)
    assert rows[1]["actor/grad_norm"] == pytest.approx(embedded[2]["train/grad_norm"], rel=1e-3)


def test_the_merged_model_is_served_by_transformers(folder):
    model = folder / "model"
    settings = json.loads((model / "config.json").read_text())
    assert settings["dtype"] == "float32"
    assert not list(model.glob("*.bin")) and list(model.glob("*.safetensors"))
    network = AutoModelForCausalLM.from_pretrained(model)
    with torch.no_grad():
        assert torch.isfinite(network(torch.tensor([[1, 2, 3]])).logits).all()

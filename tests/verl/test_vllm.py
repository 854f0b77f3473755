"""vLLM's CPU build as verl's rollout engine: real sampling, real weights sent after every step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recollect.config.engine import LossConfig, OptimConfig
from recollect.config.presets import preset
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.runs.episodes import read_episodes
from recollect.runs.run import read_metrics
from tests.support.cluster import run
from tests.support.widened import widened

pytest.importorskip("vllm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("cluster")
    demo = preset("demo")
    config = replace(
        demo,
        name="vllm",
        folder=place,
        model=replace(demo.model, path=str(widened(place / "model"))),
        rollout=RolloutConfig(tasks=8, n=4),
        # With another sampler, ratios are taken against the trainer's own probabilities.
        loss=LossConfig(kl_coef=0.0, tis_cap=2.0),
        optim=OptimConfig(lr=5e-3, warmup_steps=0, weight_decay=0.0),
        updates_per_step=2,
        val=ValidationConfig(tasks=8, n=1),
        steps=3,
        test_freq=3,
        save_freq=3,
    )
    # Two processes of agents ask one server at the same time.
    return run(config, engine="vllm", actor_rollout_ref__rollout__agent__num_workers=2)


def test_the_fold_runs_on_vllm(folder):
    rows = read_metrics(folder)
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert all(row["episodes/failed"] == 0 for row in rows[1:])
    episodes = list(read_episodes(folder / "episodes" / "train-000003.jsonl.gz"))
    assert all(len(e.contexts) == 4 for e in episodes)


def test_vllm_gets_the_weights_of_every_step(folder):
    """Steps this long would tear sampler and trainer apart, were the weights not sent."""
    for row in read_metrics(folder)[1:]:
        assert row["training/rollout_actor_probs_pearson_corr"] > 0.999
        assert row["training/rollout_probs_diff_max"] < 1e-3

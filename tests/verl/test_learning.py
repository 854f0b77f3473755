"""The fold learns through Ray, verl and FSDP: several contexts per episode, one reward."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from recollect.config.engine import OptimConfig
from recollect.config.presets import preset
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.engines.verl.start_times import SAID, read_parts
from recollect.runs.episodes import read_episodes
from recollect.runs.run import read_metrics
from tests.support.cluster import run

STEPS = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    config = replace(
        preset("short_diary"),
        name="learning",
        folder=tmp_path_factory.mktemp("cluster"),
        rollout=RolloutConfig(tasks=16, n=8),
        optim=OptimConfig(lr=1e-3, warmup_steps=4, weight_decay=0.0),
        updates_per_step=4,
        val=ValidationConfig(tasks=128, n=2, temperature=1.0),
        steps=STEPS,
        test_freq=STEPS,
        save_freq=STEPS,
    )
    return run(config)


def test_the_fold_learns(folder):
    rows = read_metrics(folder)
    rewards = [row["reward/mean"] for row in rows if "reward/mean" in row]
    curve = [round(float(np.mean(rewards[at : at + 6])), 2) for at in range(0, STEPS, 6)]
    print("mean reward of every six steps:", curve)
    before, after = rows[0], rows[-1]
    print(f"held-out: {before['val/accuracy']:.3f} to {after['val/accuracy']:.3f}")
    assert curve[-1] > curve[0] + 0.1, curve
    # Sampled alike before and after; the intervals do not touch.
    assert after["val/low"] > before["val/high"], (before["val/accuracy"], after["val/accuracy"])


def test_metrics_are_those_of_the_embedded_engine(folder):
    row = read_metrics(folder)[5]
    for name in ("episodes/total", "episodes/failed", "reward/mean", "groups/mixed", "train/lr",
                 "contexts/per_episode", "tokens/sampled", "tokens/trained", "train/grad_norm",
                 "train/pg_loss", "train/updates", "time/rollout", "time/update"):  # fmt: skip
        assert name in row, name
    assert row["contexts/per_episode"] == 4  # three chunks and a question
    assert row["tokens/trained"] == row["tokens/sampled"]


def test_the_start_is_laid_out_by_part(folder):
    parts = dict(read_parts(folder))
    assert list(parts) == [
        "settings and tasks", "imports", "Ray and the trainer's process", "the queue",
        *SAID.values(), "the sampler's weights", "the agents' processes",
    ]  # fmt: skip
    assert all(seconds >= 0 for seconds in parts.values())
    said = folder.with_suffix(".log").read_text(errors="replace")
    assert "s from the command to the first rollout: settings and tasks" in said


def test_what_was_sampled_can_be_read_back(folder):
    episodes = list(read_episodes(folder / "episodes" / f"train-{STEPS:06d}.jsonl.gz"))
    assert len(episodes) == 128
    assert all(len(episode.contexts) == 4 and episode.ok for episode in episodes)
    assert [e.rollout for e in episodes[:8]] == list(range(8))
    assert len({e.task.id for e in episodes[:8]}) == 1

"""The recursive agent through the real loop: it learns, and a run is the same killed or not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from benchmarks.recursive import make_model, settings
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.train import saved_model
from tests.train.test_prefetch import killed, run


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that writes every program equally often."""
    folder = tmp_path_factory.mktemp("recursive") / "model"
    make_model(folder, tasks=200, steps=60)
    return folder


def test_reward_teaches_which_program_fits(model, tmp_path):
    config = replace(
        settings(model, 0, 12),
        rollout=RolloutConfig(tasks=12, n=8),
        val=ValidationConfig(tasks=96, temperature=1.0),
        save_freq=12,
    )
    rows = run(tmp_path / "run", config)
    before, after = rows[0], rows[-1]
    assert after["val/low"] > before["val/high"], (before["val/accuracy"], after["val/accuracy"])
    assert after["score/broken"] < rows[1]["score/broken"]  # malformed programs are unlearned


def test_a_run_with_programs_and_calls_is_the_same_when_killed(model, tmp_path):
    config = replace(
        settings(model, 0, 3),
        rollout=RolloutConfig(tasks=4, n=6),
        val=ValidationConfig(tasks=2, before_training=False),
        save_freq=1,
        test_freq=3,
        keep=9,
    )
    whole = run(tmp_path / "whole", config)
    assert sum(row["score/programs"] for row in whole) > 0
    assert sum(row["score/asks"] for row in whole) > 0  # children were sampled and trained, too
    assert run(tmp_path / "again", config) == whole
    folder = killed(tmp_path / "whole", tmp_path / "killed", 1)
    assert run(folder, config) == whole
    end = "checkpoints/step-000003/weights.safetensors"
    one, other = (saved_model.load_file(tmp_path / name / end) for name in ("whole", "killed"))
    assert all(torch.equal(one[name], other[name]) for name in one)

"""The recursive agent through the real loop: the same seed gives the same run, killed or not."""

from __future__ import annotations

from dataclasses import replace

import torch

from benchmarks.recursive import make_model, settings
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.train import saved_model
from tests.train.test_prefetch import killed, run


def test_a_run_with_programs_and_calls_is_the_same_when_killed(tmp_path):
    make_model(tmp_path / "model", tasks=200, steps=60)
    config = replace(
        settings(tmp_path / "model", 0, 3),
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

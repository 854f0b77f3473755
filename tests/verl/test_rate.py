"""The learning rate on the cluster is the embedded engine's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from verl.utils.torch_functional import get_cosine_schedule_with_warmup

from recollect.config.engine import OptimConfig
from recollect.config.presets import preset
from recollect.engines.verl.launch.translate import ACTOR, translate
from recollect.train.optimiser import learning_rate


@pytest.mark.parametrize("warmup", [0, 1, 5])
def test_warm_up_and_then_constant(warmup):
    optim = OptimConfig(lr=1e-3, warmup_steps=warmup)
    config = replace(preset("demo"), optim=optim, updates_per_step=1)
    keys = {
        name.removeprefix(f"{ACTOR}.optim."): value
        for name, value in translate(config, Path("/run"), 512).items()
    }
    assert keys["lr_scheduler_type"] == "cosine"
    adam = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=keys["lr"])
    schedule = get_cosine_schedule_with_warmup(
        adam, keys["lr_warmup_steps"], 10, keys["min_lr_ratio"],
        zero_indexed_step=keys["zero_indexed_step"],
    )  # fmt: skip
    for step in range(12):
        assert adam.param_groups[0]["lr"] == pytest.approx(learning_rate(optim, step)), step
        adam.step()
        schedule.step()

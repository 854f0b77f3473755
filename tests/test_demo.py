"""The demo learns: from a base that keeps some mention to an agent that keeps the asked one."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import torch

from recollect.config.presets import DEMO_MODEL, PRESETS
from recollect.runs.run import Run, read_metrics
from recollect.train.loop import train
from recollect.train.rollouts import Rollouts


class Nobody:
    def __getattr__(self, _name: str):
        return lambda *_args: None


def test_reward_alone_decides_which_mention_is_kept(tmp_path):
    torch.manual_seed(0)
    demo = PRESETS["demo"]
    val = dataclasses.replace(demo.val, tasks=256, lengths=(4,), length_tasks=128)
    config = dataclasses.replace(demo, steps=40, test_freq=40, val=val)
    run = Run.open(tmp_path / "demo", dataclasses.asdict(config))
    outcome = asyncio.run(train(Rollouts.open(config), run, Nobody()))
    run.close()
    rows = read_metrics(run.folder)
    before, after = rows[0], rows[-1]
    print(before, after, outcome.lengths, outcome.distractors)
    assert before["val/high"] < 0.7  # the base does not know it
    assert after["val/low"] > before["val/high"]
    assert after["episodes/failed"] == 0


def test_the_base_checkpoint_is_small():
    files = [path for path in Path(DEMO_MODEL).iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 4 << 20

"""The demo learns: from a base that keeps some mention to an agent that keeps the asked one."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import torch

from recollect.config.presets import DEMO_MODEL, PRESETS
from recollect.runs.run import Run, read_metrics
from recollect.tasks.made.wordings import PLAIN
from recollect.train.loop import train
from recollect.train.rollouts import Rollouts
from recollect.types import Task


class Nobody:
    def __getattr__(self, _name: str):
        return lambda *_args: None


def test_reward_alone_decides_which_mention_is_kept(tmp_path):
    torch.manual_seed(0)
    demo = PRESETS["demo"]
    val = dataclasses.replace(demo.val, tasks=256, lengths=(), length_tasks=128)
    config = dataclasses.replace(demo, steps=18, test_freq=18, val=val)
    run = Run.open(tmp_path / "demo", dataclasses.asdict(config))
    outcome = asyncio.run(train(Rollouts.open(config), run, Nobody()))
    run.close()
    rows = read_metrics(run.folder)
    before, after = rows[0], rows[-1]
    # An agent that always keeps, or always overwrites, is right where there is one mention, and
    # in half of the other tasks.
    blind = sum(1 + (mentions(task) == 1) for task in demo.tasks.tasks(256, 0, "test")) / 512
    assert before["val/accuracy"] < blind + 0.05 < 0.8
    assert after["val/low"] > 0.85
    assert outcome.distractors[2].mean > after["val/accuracy"] - 0.1
    assert after["episodes/failed"] == 0


def mentions(task: Task) -> int:
    """Count the chunks that mention the asked kind."""
    [answer] = task.questions[0].answers
    [kind] = (own for own in PLAIN.values.values() if answer in own)
    return sum(any(f" {value}." in chunk for value in kind) for chunk in task.chunks)


def test_the_base_checkpoint_is_small():
    files = [path for path in Path(DEMO_MODEL).iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 4 << 20

"""RULER can be trained on: its preset through the real rollout, with the published score."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from recollect.agents.fold import FoldAgent
from recollect.config.engine import ModelConfig
from recollect.config.presets import preset
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.memory.text import TextMemory
from recollect.tasks.haystacks.babilong import BabiLong
from recollect.tasks.haystacks.ruler import Ruler
from recollect.train.rollouts import Rollouts
from recollect.train.wiring import make_reward
from recollect.types import Episode
from tests.support.tiny import tiny_model


class Nobody:
    """A watcher that looks away."""

    def __getattr__(self, _name: str):
        return lambda *_args: None


def test_needles_are_trained_on_at_growing_lengths(tmp_path):
    config = replace(
        preset("ruler"),
        model=ModelConfig(path=str(tiny_model(tmp_path)), device="cpu"),
        tasks=Ruler("niah_multikey_3", tokens=700),
        agent=FoldAgent(400, 4, 4),
        rollout=RolloutConfig(tasks=1, n=2, curriculum=(1, 2), curriculum_steps=1),
        val=ValidationConfig(tasks=1),
    )
    rollouts = Rollouts.open(config)
    [short] = asyncio.run(rollouts.generate(1, Nobody()))
    [long] = asyncio.run(rollouts.generate(2, Nobody()))
    assert all(episode.ok and episode.reward is not None for episode in (*short, *long))
    assert len(long[0].contexts) > len(short[0].contexts) > 2


def test_all_references_count():
    config = replace(preset("ruler"), tasks=Ruler("niah_multivalue", tokens=2000))
    question = replace(preset("ruler").tasks.task(0).questions[0], answers=("111", "222"))
    task = replace(preset("ruler").tasks.task(0), questions=(question,))
    half = Episode(task, 0, answers=["It is \\boxed{222}"])
    score = asyncio.run(make_reward(config, {})(half, TextMemory()))
    assert score.reward == 0.5


def test_the_presets_read_about_six_chunks():
    for name, kind in (("ruler", Ruler), ("babilong", BabiLong)):
        config = preset(name)
        assert isinstance(config.tasks, kind)
        assert config.tasks.tokens == 28672 and config.agent.chunk_size == 5000

"""The loop's parts: batches of episodes that leave no trace, and a run in which all fails."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.agents.fold import FoldAgent, FoldPrompts
from recollect.config import RolloutConfig, TrainConfig, ValidationConfig
from recollect.errors import UserError
from recollect.presets import preset
from recollect.rollout import Group
from recollect.train.loop import Learner, refuse_dead
from recollect.train.settings import ModelConfig
from recollect.types import Episode, Failure
from recollect.validation import Accuracy
from tests.tiny import tiny_model


class Nobody:
    """A watcher that looks away."""

    def step(self, step: int, metrics: dict[str, float], groups: list[Group]) -> None: ...
    def validation(self, step: int, results: dict[str, Accuracy]) -> None: ...
    def phase(self, name: str, done: int, total: int) -> None: ...
    def note(self, text: str) -> None: ...


def settings(model: Path) -> TrainConfig:
    """Prompts of several hundred tokens that all begin alike."""
    prompts = FoldPrompts(unknown_problem="Anything in the text may be asked for. " * 4)
    agent = FoldAgent(200, 6, 6, max_chunks=2, query_aware=False, prompts=prompts)
    return replace(
        preset("recall"),
        model=ModelConfig(path=str(model)),
        agent=agent,
        rollout=RolloutConfig(tasks=2, n=3),
        val=ValidationConfig(tasks=3),
    )


def sampled(groups: list[Group]) -> list[tuple[list[int], list[tuple[float, ...]]]]:
    contexts = [c for group in groups for episode in group for c in episode.contexts]
    assert len(contexts) == 2 * 3 * 3
    return [(c.ids, [turn.logprobs for turn in c.turns]) for c in contexts]


def test_a_step_is_the_same_after_a_validation_and_without_one(tmp_path):
    """A run resumed after a validation has not made it, and must go on bit for bit."""
    config = settings(tiny_model(tmp_path))

    async def step(validate_first: bool) -> list[Group]:
        learner = Learner.open(config)
        if validate_first:
            assert len(await learner.validate(Nobody())) == 3
        (sampler,) = learner.cast.samplers
        assert not sampler._blocks and not sampler._cache.slots
        return await learner.generate(1, Nobody())

    assert sampled(asyncio.run(step(True))) == sampled(asyncio.run(step(False)))


def test_a_step_in_which_all_episodes_fail_ends_the_run():
    task = preset("recall").tasks.task(0)
    bad = Episode(task, 0, failure=Failure("policy", "OutOfMemoryError", "no room"))
    refuse_dead([[bad, Episode(task, 1, reward=0.0)]], "step 7")
    with pytest.raises(UserError, match=r"step 7 failed.*policy: OutOfMemoryError: no room"):
        refuse_dead([[bad], [bad]], "step 7")

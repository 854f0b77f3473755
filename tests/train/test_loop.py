"""The loop's parts: batches of episodes that leave no trace, and a run in which all fails."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from recollect.accuracy import Accuracy
from recollect.advantages import step_advantages
from recollect.agents.fold import FoldAgent, FoldPrompts
from recollect.chat.rendering import user
from recollect.config.engine import LossConfig, ModelConfig, OptimConfig
from recollect.config.presets import DEMO_MODEL, PRESETS, preset
from recollect.config.roles import ModelsConfig
from recollect.config.rollout import OverlongConfig, RolloutConfig, ValidationConfig
from recollect.config.train import TrainConfig
from recollect.errors import UserError
from recollect.rollout import Group
from recollect.runs.run import Run, read_metrics
from recollect.train.comparison import compare, differs
from recollect.train.failures import refuse_dead, refuse_silent, refuse_unmeasured
from recollect.train.loop import train
from recollect.train.rollouts import Rollouts
from recollect.train.watcher import Watcher
from recollect.types import Context, Episode, Failure, Turn
from tests.support.tiny import tiny_model


class Nobody:
    """A watcher that looks away."""

    def step(self, step: int, metrics: dict[str, float], groups: list[Group]) -> None: ...
    def validation(self, step: int, results: dict[str, Accuracy]) -> None: ...
    def phase(self, name: str, done: int, total: int) -> None: ...
    def note(self, text: str) -> None: ...


class Noting(Nobody):
    """One that keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


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


def test_what_settings_do_not_do_is_told_at_the_start(tmp_path):
    config = replace(
        settings(tiny_model(tmp_path)),
        loss=LossConfig(kl_coef=0.0, kl_in="reward", scope="context"),
    )
    config = replace(config, rollout=replace(config.rollout, top_p=0.9), steps=1, epochs=1)
    told = []

    class Hears(Nobody):
        def note(self, text: str) -> None:
            told.append(text)

    run = Run.open(tmp_path / "run", asdict(config))
    asyncio.run(train(Rollouts.open(config), run, Hears()))
    run.close()
    assert [note for note in told if note in config.notes] == list(config.notes)
    assert [note.split()[0] for note in config.notes] == [
        *("rollout.top_p", "loss.kl_in", "loss.scope"),
    ]
    assert not any(one.notes for one in PRESETS.values())


def test_a_step_is_the_same_after_a_validation_and_without_one(tmp_path):
    """A run resumed after a validation has not made it, and must go on bit for bit."""
    config = settings(tiny_model(tmp_path))

    async def step(validate_first: bool) -> list[Group]:
        rollouts = Rollouts.open(config)
        if validate_first:
            assert len(await rollouts.validate(Nobody())) == 3
        (sampler,) = rollouts.roles.samplers
        assert not sampler._blocks and not sampler._cache.slots
        return await rollouts.generate(1, Nobody())

    assert sampled(asyncio.run(step(True))) == sampled(asyncio.run(step(False)))


def test_a_step_in_which_all_episodes_fail_ends_the_run():
    task = preset("recall").tasks.task(0)
    bad = Episode(task, 0, failure=Failure("policy", "OutOfMemoryError", "no room"))
    refuse_dead([[bad, Episode(task, 1, reward=0.0)]], "step 7")
    with pytest.raises(UserError, match=r"step 7 failed.*policy: OutOfMemoryError: no room"):
        refuse_dead([[bad], [bad]], "step 7")


def test_a_step_in_which_the_model_that_learns_is_silent_ends_the_run():
    task = preset("recall").tasks.task(0)
    said = [Turn(1, (7,), (-1.0,), "stop")]
    fixed = Context("answer", "answer", False, [1, 7], said)
    unheard = Context("memory", "memory", True, [1], [])
    silent = Episode(task, 0, [unheard, fixed], reward=1.0)
    with pytest.raises(
        UserError, match=r"step 2 the model that learns \(memory\) said nothing"
    ) as e:
        refuse_silent([[silent], [silent]], ("memory",), "step 2")
    assert "only answer spoke" in e.value.what and "--models.answer" in e.value.fix
    heard = Context("memory", "memory", True, [1, 7], said)
    refuse_silent([[silent], [Episode(task, 0, [heard], reward=0.0)]], ("memory",), "step 2")
    marked = Context("memory", "memory", False, [1, 7], said)  # by a reward, say
    with pytest.raises(UserError, match=r"learns \(memory\) said is marked as not to be") as e:
        refuse_silent([[Episode(task, 0, [marked], reward=0.0)]], ("memory",), "step 2")
    assert "neither your reward nor your agent" in e.value.fix
    # What was said in episodes that are left out trains nothing.
    gone = Episode(task, 0, [heard], failure=Failure("endpoint", "Gone", ""))
    with pytest.raises(UserError, match="said nothing"):
        refuse_silent([[silent, gone]], ("memory",), "step 2")


def test_a_validation_that_no_judge_measured_ends_the_run():
    task = preset("recall").tasks.task(0)
    lost = Episode(task, 0, failure=Failure("judge", "Timeout", "no answer", "measurement"))
    wrong = Episode(task, 0, failure=Failure("agent", "ValueError", "", "agent"))
    refuse_unmeasured([[lost], [wrong]], "the validation after step 3")
    with pytest.raises(UserError, match=r"validation after step 3 failed.*judge: Timeout"):
        refuse_unmeasured([[lost], [lost]], "the validation after step 3")


def test_a_silent_role_stops_a_real_run_with_one_message(tmp_path):
    """The answer learns, but this agent lets nobody answer."""
    with pytest.raises(UserError, match="nothing can be trained: in step 1"):
        run_demo(tmp_path, agent=Mute(None, 3, 6), models=ModelsConfig(memory=str(DEMO_MODEL)))


@dataclass(frozen=True)
class Mute(FoldAgent):
    """Read, and answer with the memory."""

    async def run(self, task, chats, memory):
        await chats.open("memory").say(user(task.chunks[0]), max_tokens=2)
        return [memory.text] * len(task.questions)


def test_a_step_without_differences_says_so_and_the_run_continues(tmp_path):
    watcher = Noting()
    wrong = replace(preset("demo").reward, metric="numeric_match")  # no answer is a number
    run_demo(tmp_path, watcher, reward=wrong)
    assert [note for note in watcher.notes if "nothing to learn" in note] == [
        f"step {step}: in no group did one episode do better than another, so there was nothing to"
        " learn"
        for step in (1, 2)
    ]


def test_what_a_sampler_says_in_a_step_is_said_once(tmp_path, monkeypatch):
    """It may find at any step that it has to do without something."""
    generate = Rollouts.generate

    async def noted(self: Rollouts, step: int, *more):
        if step == 1:
            self.roles.notes.append("no tokens are guessed")
        return await generate(self, step, *more)

    monkeypatch.setattr(Rollouts, "generate", noted)
    watcher = Noting()
    run_demo(tmp_path, watcher)
    assert watcher.notes.count("no tokens are guessed") == 1
    assert sum("TRAINABLE" in note for note in watcher.notes) == 2


def run_demo(folder: Path, watcher: Watcher | None = None, **changes) -> list[dict[str, float]]:
    """Train the demo for two small steps; return what was logged."""
    demo = replace(
        preset("demo"),
        rollout=RolloutConfig(tasks=4, n=4),
        val=ValidationConfig(tasks=2, before_training=False),
        optim=OptimConfig(lr=5e-4, warmup_steps=0),
        updates_per_step=2,
        steps=2,
    )
    config = replace(demo, **changes)
    run = Run.open(folder, asdict(config))
    asyncio.run(train(Rollouts.open(config), run, watcher or Nobody()))
    run.close()
    return read_metrics(folder)


def test_divergence_and_length_are_charged_in_the_reward(tmp_path):
    first, second = run_demo(
        tmp_path / "run",
        loss=LossConfig(kl_coef=0.5, kl="k3", kl_in="reward"),
        overlong=OverlongConfig(limit=2, margin=1, charge=0.25),
    )
    assert first["charge/kl"] == pytest.approx(0.0, abs=1e-5)  # nothing has moved yet
    assert second["charge/kl"] > 1e-4
    assert 0 < first["charge/overlong"] <= 0.25
    assert "train/kl" not in first
    assert first["reward/mean"] in {n / 16 for n in range(17)}  # what is shown is what was earned


def test_groups_without_differences_are_replaced(tmp_path):
    """Up to the cap; and what a step draws depends on no earlier step."""
    config = replace(
        preset("demo"), rollout=RolloutConfig(tasks=6, n=2, refills=2), val=ValidationConfig(1)
    )
    groups = asyncio.run(Rollouts.open(config).generate(3, Nobody()))
    kept = [group for group in groups if differs(config, group)]
    assert len(groups) > 6 >= len(kept) > 0
    assert all(len({episode.reward for episode in group}) == 2 for group in kept)
    ids = [group[0].task.id for group in groups]
    assert ids == [config.tasks.task(36 + i).id for i in range(len(groups))]
    once = replace(config, rollout=RolloutConfig(tasks=6, n=2))
    assert len(asyncio.run(Rollouts.open(once).generate(3, Nobody()))) == 6


def test_only_what_differs_is_trained_on(tmp_path):
    rollout = RolloutConfig(tasks=4, n=2, refills=1)
    for row in run_demo(tmp_path / "run", rollout=rollout):
        assert 0 < row["groups/kept"] <= 4 < row["episodes/total"] / 2
        assert row["samples/total"] == row["groups/kept"] * 2 * row["contexts/per_episode"]


def test_texts_grow_by_the_curriculum(tmp_path):
    rollout = RolloutConfig(tasks=2, n=2, curriculum=(1, 3), curriculum_steps=2)
    assert [rollout.times(step) for step in range(1, 7)] == [1, 1, 3, 3, 3, 3]
    config = replace(preset("demo"), rollout=rollout, updates_per_step=1, val=ValidationConfig(1))
    short = asyncio.run(Rollouts.open(config).generate(2, Nobody()))
    long = asyncio.run(Rollouts.open(config).generate(3, Nobody()))
    assert {len(group[0].task.chunks) for group in short} == {3}
    assert {len(group[0].task.chunks) for group in long} == {9}
    with pytest.raises(UserError, match="curriculum"):
        RolloutConfig(curriculum=())


@pytest.mark.parametrize("method", ["reinforce_pp", "reinforce_pp_baseline", "gdpo"])
def test_batch_wide_methods_train(tmp_path, method):
    components = ("answer",) if method == "gdpo" else ()
    rows = run_demo(tmp_path / "run", advantage=method, components=components)
    assert all(row["train/grad_norm"] > 0 for row in rows)


def test_gdpo_needs_components_and_takes_no_charges():
    with pytest.raises(UserError, match="components"):
        replace(preset("demo"), advantage="gdpo")
    with pytest.raises(UserError, match="components"):
        replace(preset("demo"), components=("answer",))
    with pytest.raises(UserError, match="charges"):
        replace(
            preset("demo"),
            advantage="gdpo",
            components=("answer",),
            overlong=OverlongConfig(limit=10, margin=5),
        )


def test_steps_are_rewarded_beside_the_outcome(tmp_path):
    config = replace(
        preset("demo"), rollout=RolloutConfig(tasks=4, n=4), outcome_share=0.8, advantage="rloo"
    )
    groups = asyncio.run(Rollouts.open(config).generate(1, Nobody()))
    gains = [[c.steps.get("memory_recall") for c in e.contexts] for g in groups for e in g]
    assert all(own[-1] is None and None not in own[:-1] for own in gains)  # all but the answer
    assert len({gain for own in gains for gain in own}) > 2
    found = compare(config, groups)
    outcome = compare(replace(config, outcome_share=1.0), groups)
    steps = [step_advantages(group) for group in groups]
    assert found != outcome
    flat = [np.array([a for group in x for own in group for a in own]) for x in (outcome, steps)]
    got = [a for group in found for own in group for a in own]
    np.testing.assert_allclose(got, 0.8 * flat[0] + 0.2 * flat[1])
    rows = run_demo(tmp_path / "run", outcome_share=0.8)
    assert all("score/memory_recall" in row for row in rows)
    with pytest.raises(UserError, match="one text"):
        replace(preset("bank"), outcome_share=0.8)
    with pytest.raises(UserError, match="outcome_share is"):
        replace(preset("demo"), outcome_share=1.5)

"""What a dry run says of a run's work: bounds that hold, and the refusals of the run itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.agents.fold import FoldAgent
from recollect.cli import main
from recollect.commands.dry_run import StepWork, episodes, estimate
from recollect.config.presets import DEMO_MODEL, preset
from recollect.config.rollout import LocalConfig, RolloutConfig
from recollect.config.train import TrainConfig
from recollect.tasks.made.recall import Recall
from recollect.train.rollouts import Rollouts
from tests.support.tiny import tiny_model

DEMO = preset("demo")
TASKS, N, MEMORY, ANSWER = 4, 2, 3, 6
SMALL = RolloutConfig(tasks=TASKS, n=N)
"""Episodes of the demo read three chunks and answer one question."""
EPISODE = 3 * MEMORY + ANSWER
"""Tokens that one samples, at most."""


class Silent:
    """A watcher that nothing is kept of."""

    def phase(self, name: str, done: int, total: int) -> None: ...

    def note(self, text: str) -> None: ...


def planned(times: int = 1, **changes) -> StepWork:
    return estimate(replace(DEMO, updates_per_step=1, **changes), DEMO_MODEL, times)


def test_a_step_by_hand():
    work = planned(rollout=SMALL)
    assert work.contexts == 4 and work.sampled == TASKS * N * EPISODE
    assert work.shared < work.prompt


def test_every_task_may_be_drawn_again():
    plain, refilled = planned(rollout=SMALL), planned(rollout=replace(SMALL, refills=2))
    assert refilled.sampled == 3 * TASKS * N * EPISODE
    assert refilled.contexts == 4
    assert (refilled.prompt, refilled.shared) == (3 * plain.prompt, 3 * plain.shared)


def test_episodes_from_the_middle_count_as_whole_ones():
    local = LocalConfig(n=4, forks=2)
    work = planned(rollout=SMALL, local=local)
    assert work == planned(rollout=replace(SMALL, n=N + 8))
    assert work.sampled == TASKS * (N + 8) * EPISODE
    # Only groups that can be told apart are gone on from: never more than there are tasks.
    both = planned(rollout=replace(SMALL, refills=2), local=local)
    assert both.sampled == TASKS * (3 * N + 8) * EPISODE
    config = replace(DEMO, updates_per_step=1, rollout=replace(SMALL, refills=2), local=local)
    assert episodes(config) == TASKS * (3 * N + 8)


def test_longer_texts_of_a_curriculum():
    work = planned(4, rollout=SMALL)
    assert work.contexts == 12 + 1 and work.sampled == TASKS * N * (12 * MEMORY + ANSWER)


def test_a_plan_tells_what_the_run_would(capsys):
    assert main(["train", "demo", "--rollout.top-p", "0.9", "--dry-run"]) == 0
    assert "note: rollout.top_p is 0.9" in capsys.readouterr().out


def test_a_run_adds_up_what_its_steps_are(capsys):
    sizes = ["--rollout.tasks", "4", "--rollout.n", "2", "--steps", "5", "--updates-per-step", "1"]
    more = ["--rollout.refills", "1", "--rollout.curriculum", "1", "2", "4"]
    local = ["--local.n", "2", "--rollout.curriculum-steps", "2"]
    assert main(["train", "demo", *sizes, *more, *local, "--dry-run"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    a_task = 2 * 2 + 2  # two groups, and two episodes from the middle
    # Two steps at the tasks' own length, two at twice, one at four times it.
    sampled = 4 * a_task * (2 * 15 + 2 * (6 * 3 + 6) + (12 * 3 + 6))
    assert sampled == 2880 and f"5 steps, {5 * 4 * a_task} episodes at most, 2,880 tokens" in text
    assert "13.0 contexts each at 4x the text" in text
    assert f"{4 * a_task * 42:,} sampled at most" in text
    assert "up to 4 tasks more where all did equally well" in text
    # A multiple that the run never comes to is no work.
    assert main(["train", "demo", *sizes, *more, "--dry-run"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "4.0 contexts each, " in text and f"{5 * 4 * 4 * 15:,} tokens sampled" in text


def test_a_plan_bounds_what_a_step_does(tmp_path):
    """The model is always wrong: with refills all tasks are drawn again, and none goes on."""
    model = tiny_model(tmp_path / "model")
    config = TrainConfig(
        name="bounded",
        model=replace(DEMO.model, path=str(model)),
        tasks=Recall(chunks=2, filler=0),
        agent=FoldAgent(chunk_size=None, max_memory_tokens=4, max_answer_tokens=3),
        rollout=RolloutConfig(tasks=2, n=2, refills=2, curriculum=(2,)),
        local=LocalConfig(n=2, forks=2),
    )
    for refills in (2, 0):
        own = replace(config, rollout=replace(config.rollout, refills=refills))
        work = estimate(own, model, 2)
        groups = asyncio.run(Rollouts.open(own).generate(1, Silent()))
        made = [episode for group in groups for episode in group]
        assert len(made) <= episodes(own)
        assert max(len(episode.contexts) for episode in made) <= work.contexts
        assert sum(e.sampled_tokens for e in made) <= work.sampled
        assert len(made) == (3 * 4 if refills else 4 + 2 * 4)


@pytest.mark.parametrize(
    "words",
    [
        ["--model.path", str(DEMO_MODEL)],
        ["--models.answer", str(DEMO_MODEL)],
        ["--models.answer", "http://localhost:1/v1", "--models.answer-window", "512"],
    ],
)
def test_chunks_that_do_not_fit_are_refused_before_anything_starts(
    words, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    tiny_model(Path("wide"), max_position_embeddings=1 << 14)
    ours = ["train", "recall", "--model.path", "wide", "--agent.chunk-size", "5000", "--dry-run"]
    assert main(ours) == 0
    capsys.readouterr()
    assert main([*ours, *words]) == 2
    assert "do not fit the model's window of 512" in capsys.readouterr().err

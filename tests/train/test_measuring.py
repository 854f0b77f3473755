"""Readers and judges behind servers: asked first, corrected on resume, and never taken for a no."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.accuracy import accuracy
from recollect.commands.train import train_and_report
from recollect.config.presets import preset
from recollect.config.roles import ModelsConfig
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.config.train import MAY_CHANGE, TrainConfig
from recollect.errors import UserError
from recollect.runs.run import Run
from recollect.train.metrics import validation_metrics
from recollect.train.rollouts import Rollouts
from tests.policies.test_presence import closed_port
from tests.support.chat_server import chat_server
from tests.train.test_loop import Nobody


def curator(folder: Path, **reward) -> TrainConfig:
    config = preset("curator")
    return replace(
        config,
        folder=folder,
        reward=replace(config.reward, **reward),
        rollout=RolloutConfig(tasks=2, n=2),
        val=ValidationConfig(tasks=8, temperature=1.0),
        steps=1,
    )


@pytest.mark.parametrize(
    ("setting", "more"), [("reader_url", {"reader": "endpoint"}), ("judge_url", {})]
)
def test_a_mistyped_address_is_refused_before_anything_is_written(tmp_path, setting, more):
    config = curator(tmp_path, **{setting: closed_port()}, **more)
    with pytest.raises(UserError, match=rf"reward\.{setting}: no model answers"):
        train_and_report(config)
    assert list(tmp_path.iterdir()) == []


def test_an_address_may_be_corrected_on_resume(tmp_path):
    def resume(**reward: str) -> None:
        Run.open(tmp_path / "run", {"reward": reward}, may_change=MAY_CHANGE).close()

    resume(judge_url="http://mistyped:1/v1", reader_url="", judge_model="strict")
    resume(judge_url="http://right:1/v1", reader_url="http://right:2/v1", judge_model="strict")
    with pytest.raises(UserError, match=r"reward\.judge_model"):
        resume(judge_url="http://right:1/v1", reader_url="", judge_model="generous")


def test_longer_texts_at_which_a_server_failed_are_measured_on_resume(tmp_path):
    steps, repaired = tmp_path / "demo" / "metrics.jsonl", False

    def reply(_text: str) -> str | int:
        return "mango" if repaired or not (steps.exists() and steps.read_text()) else 400

    with chat_server(reply) as server:
        config = replace(
            preset("demo"),
            folder=tmp_path,
            models=ModelsConfig(answer=server.url),
            rollout=RolloutConfig(tasks=2, n=2),
            val=ValidationConfig(tasks=2, before_training=False, lengths=(2,), length_tasks=2),
            steps=1,
            updates_per_step=1,
        )
        with pytest.raises(UserError, match="all 2 episodes of the validation at 2x the text fail"):
            train_and_report(config)
        assert not (tmp_path / "demo" / "lengths.json").exists()
        assert (tmp_path / "demo" / "model" / "config.json").exists()
        repaired = True
        train_and_report(config)
    found = json.loads((tmp_path / "demo" / "lengths.json").read_text())["2"]
    assert (found["n"], found["failed"]) == (2, 0)


def test_a_reader_that_fails_is_unmeasured_in_validation_and_no_0(tmp_path):
    asked = 0

    def reader(_text: str) -> str | int:
        nonlocal asked
        asked += 1
        return 400 if asked % 3 == 0 else "blue"

    with chat_server(reader) as server:
        config = curator(tmp_path, reader="endpoint", reader_url=server.url, panel_weight=0.0)
        groups = asyncio.run(Rollouts.open(config).validate(Nobody()))
    episodes = [episode for group in groups for episode in group]
    lost = [e for e in episodes if e.failure and e.failure.fault == "measurement"]
    assert 0 < len(lost) < len(episodes) and all(e.failure.boundary == "reader" for e in lost)
    found = validation_metrics(groups)
    assert found["val/unmeasured"] == len(lost) and found["val/n"] == 8 - len(lost)
    kept = [[e for e in group if e.measured] for group in groups]
    assert found["val/accuracy"] == accuracy([group for group in kept if group]).mean

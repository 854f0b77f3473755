"""The folder of a cluster run: the tasks of the embedded engine, in its order, and settings."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from recollect.config.presets import preset
from recollect.config.rollout import RolloutConfig
from recollect.engines.verl.run.folder import RunFolder, drawn, placed, prepare


def small():
    config = preset("demo")
    return replace(
        config,
        rollout=RolloutConfig(tasks=3, n=2, curriculum=(1, 2), curriculum_steps=1),
        val=replace(config.val, tasks=4),
        steps=3,
        updates_per_step=1,
    )


def test_the_folder_holds_what_both_engines_draw(tmp_path):
    config = small()
    run = prepare(config, tmp_path / "run")
    assert run.config == placed(config)
    train, test = run.tasks("train"), run.tasks("test")
    assert len(train) == 9 and len(test) == 4
    assert list(train) == list(drawn(config))
    assert len(train[3].chunks) == 2 * len(train[2].chunks)  # the curriculum
    assert list(test) == [config.tasks.task(i, config.seed, "test") for i in range(4)]


def test_the_tasks_are_those_of_the_loop(tmp_path, monkeypatch):
    """Asks the embedded engine itself which tasks it runs."""
    from recollect.train.loop import Rollouts

    config = small()
    asked = []

    class Recorder:
        async def groups(self, tasks, n, key, *_):
            asked.extend(tasks)
            return [[] for _ in tasks]

    class NoRoles:
        def reset(self):
            pass

    class Silent:
        def phase(self, *_):
            pass

    rollouts = Rollouts(config, NoRoles(), config.agent)
    monkeypatch.setattr(rollouts, "rollout", lambda *_: Recorder())
    for step in range(1, config.steps + 1):
        asyncio.run(rollouts.generate(step, Silent()))
    assert asked == list(prepare(config, tmp_path / "run").tasks("train"))


def test_settings_hold_wherever_a_worker_starts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    config = small()
    config = replace(config, folder=Path("runs"), model=replace(config.model, path="model"))
    config = prepare(config, Path("run")).config
    assert config.embed.device == "cpu"  # a GPU is not theirs
    assert config.folder == tmp_path / "runs" and config.model.path == str(tmp_path / "model")
    config = prepare(
        replace(config, model=replace(config.model, path="a/name")), Path("run")
    ).config
    assert config.model.path == "a/name"


def test_rows_name_tasks_and_hold_no_text(tmp_path):
    run = prepare(small(), tmp_path / "run")
    rows = pq.read_table(run.rows("train")).to_pylist()
    assert [row["extra_info"] for row in rows] == [{"split": "train", "index": i} for i in range(9)]
    assert {row["agent_name"] for row in rows} == {"recollect"}
    assert {row["data_source"] for row in rows} == {"recall"}
    assert max(len(str(row)) for row in rows) < 250


def test_tasks_are_written_once(tmp_path):
    config = small()
    prepare(config, tmp_path)
    header = tmp_path / "tasks" / "train" / "tasks.arrow"
    before = header.stat().st_ino
    prepare(replace(config, name="other"), tmp_path)
    assert header.stat().st_ino == before
    prepare(replace(config, seed=1), tmp_path)
    assert header.stat().st_ino != before
    assert RunFolder(Path(tmp_path)).config.seed == 1

"""Trackers get what is logged once, however often a run is resumed; a missing one is named."""

from __future__ import annotations

import json
import math
import sys

import pytest

from recollect.errors import UserError
from recollect.runs.tracker_services import SERVICES, TrackerConfig
from recollect.runs.trackers import (
    FILE,
    ROLLOUTS,
    check_trackers,
    open_trackers,
    rollout_row,
    tracker_environment,
)
from recollect.types import Episode, Failure, MemoryOp, Question, Task
from tests.support.fake_trackers import FAKES, install

CONFIG = {"lr": 0.001, "agent": {"chunk_size": 5}}
NAMED = TrackerConfig("memories", "team", "first try", "sweep", ("a", "b"), rollouts=2)


def episode(rollout: int = 0) -> Episode:
    task = Task("t<1>", (), (Question("Where?", ("Oslo", "Norway")), Question("When?", ("May",))))
    ops = [
        MemoryOp("replace", {"text": "Ada is in\x1b[31m Oslo"}, "chunk 1"),
        MemoryOp("add", {"content": "in May", "token_ids": [1]}, "chunk 2"),
    ]
    return Episode(task, rollout, ops=ops, answers=["Oslo", "May"], reward=0.5)


def scalars(folder, tag):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def texts(folder, tag):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    found = events.Tensors(tag)
    return [(event.step, event.tensor_proto.string_val[0].decode()) for event in found]


def test_tensorboard_reads_back_what_was_logged(tmp_path):
    with open_trackers(["tensorboard", "tensorboard"], tmp_path, CONFIG, NAMED) as trackers:
        assert len(trackers.opened) == 1
        trackers.log(1, {"reward": 0.5, "time/step": 2}, [episode()])
        trackers.log(2, {"reward": math.nan})
    (first, second) = scalars(tmp_path, "reward")
    assert first == (1, 0.5) and second[0] == 2 and math.isnan(second[1])
    assert scalars(tmp_path, "time/step") == [(1, 2.0)]
    ((step, table),) = texts(tmp_path, "rollouts")
    assert step == 1 and table.startswith("| task | rollout |") and r"t\<1\>" in table
    assert "Where?<br>When?" in table and "\x1b" not in table
    ((_, settings),) = texts(tmp_path, "settings")
    assert "| agent.chunk\\_size | 5 |" in settings.replace("chunk_size", "chunk\\_size")


def test_tensorboard_forgets_what_a_resumed_run_makes_again(tmp_path):
    for start, reward in ((-1, 0.25), (2, 0.75)):
        with open_trackers(["tensorboard"], tmp_path, CONFIG, start=start) as trackers:
            for step in range(start + 1, 5):
                trackers.log(step, {"reward": reward})
    assert scalars(tmp_path, "reward") == [(0, 0.25), (1, 0.25), (2, 0.25), (3, 0.75), (4, 0.75)]


def test_an_unknown_tracker_is_refused_with_the_known_ones():
    known = "tensorboard, wandb, swanlab, trackio, mlflow"
    with pytest.raises(UserError, match=rf"no tracker 'tb'\n.*{known}"):
        check_trackers(["tb"])


@pytest.mark.parametrize("name", SERVICES)
def test_a_missing_package_is_named(tmp_path, monkeypatch, name):
    for module in [m for m in sys.modules if m.split(".")[0] == name]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, name, None)  # makes the import fail, installed or not
    missing = rf"{name} is not installed.*\n  fix: pip install {name}"
    with pytest.raises(UserError, match=missing), open_trackers([name], tmp_path, CONFIG):
        pass
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("name", FAKES)
def test_services_get_their_run_its_metrics_and_its_end(tmp_path, monkeypatch, name):
    fake = install(monkeypatch, name)
    folder = tmp_path / "demo"
    folder.mkdir()
    with open_trackers([name], folder, CONFIG, NAMED) as trackers:
        trackers.log(0, {"val/accuracy": 0.1})
        trackers.log(3, {"reward": 1.0}, [episode(i) for i in range(5)])
    ((id, run),) = fake.runs.items()
    assert run.scalars("reward") == [(3, 1.0)] and run.steps() == [0, 3]
    ((step, table),) = run.tables("rollouts")
    assert step == 3 and tuple(table.columns) == ROLLOUTS and len(table.data) == 2
    assert json.loads((folder / FILE).read_text())[name]["id"] == id
    settings = run.settings
    if name == "mlflow":
        assert list(fake.experiments) == ["memories"] and settings["name"] == "first try"
        assert settings["params"] == {"lr": "0.001", "agent.chunk_size": "5"}
        assert settings["tags"]["a"] == "true" and settings["tags"]["entity"] == "team"
        assert json.loads(settings["tags"]["mlflow.loggedArtifacts"])[0]["type"] == "table"
        assert run.ended == ["FINISHED"]
        return
    assert settings["project"] == "memories" and settings["group"] == "sweep"
    assert "first try" in (settings.get("name"), settings.get("experiment_name"))
    assert settings["config"]["agent"] == {"chunk_size": 5}
    assert "team" in (settings.get("entity"), settings.get("workspace")) or name == "trackio"
    assert ["a", "b"] in (settings.get("tags"), settings["config"].get("tags"))
    assert run.ended == ([{"exit_code": 0}] if name == "wandb" else [{}])


@pytest.mark.parametrize("name", FAKES)
def test_a_resumed_run_continues_and_doubles_no_step(tmp_path, monkeypatch, name):
    fake = install(monkeypatch, name)
    with (
        pytest.raises(KeyboardInterrupt),
        open_trackers([name], tmp_path, CONFIG) as trackers,
    ):
        for step in range(8):  # the last checkpoint is of step 5
            trackers.log(step, {"reward": step / 10}, [episode()])
        raise KeyboardInterrupt
    with open_trackers([name], tmp_path, CONFIG, start=5) as trackers:
        for step in range(6, 10):
            trackers.log(step, {"reward": step / 10}, [episode()])
    (run,) = fake.runs.values()
    assert run.opened == 2
    assert run.scalars("reward") == [(step, step / 10) for step in range(10)]
    assert [step for step, _ in run.tables("rollouts")] == list(range(10))
    if name in ("wandb", "swanlab"):
        assert run.settings["resume"] == "allow"
    if name == "wandb":
        assert run.ended == [{"exit_code": 1}, {"exit_code": 0}]
    if name == "mlflow":
        assert run.ended == ["FAILED", "FINISHED"]


@pytest.mark.parametrize("name", FAKES)
def test_runs_of_one_name_in_two_folders_are_two_runs(tmp_path, monkeypatch, name):
    fake = install(monkeypatch, name)
    for parent in ("one", "two"):
        (tmp_path / parent / "demo").mkdir(parents=True)
        with open_trackers([name], tmp_path / parent / "demo", CONFIG) as trackers:
            trackers.log(1, {"reward": 1.0})
    assert [run.steps() for run in fake.runs.values()] == [[1], [1]]


def test_results_are_sent_once_and_again_when_they_change(tmp_path, monkeypatch):
    fake = install(monkeypatch, "wandb")
    tables = {"scores": (("agent", "mean"), [("fold", 0.5)])}
    for score in (0.5, 0.5, 0.75):
        with open_trackers(["wandb"], tmp_path, CONFIG) as trackers:
            trackers.log_result({"eval/fold": score}, tables)
    (run,) = fake.runs.values()
    assert run.scalars("eval/fold") == [(0, 0.5), (1, 0.75)] and len(run.tables("scores")) == 2


def test_a_service_that_cannot_start_is_a_message_and_closes_the_others(tmp_path, monkeypatch):
    def refuse(**_settings):
        raise RuntimeError("no API key")

    monkeypatch.setattr(install(monkeypatch, "wandb"), "init", refuse)
    other = install(monkeypatch, "trackio")
    with (
        pytest.raises(UserError, match=r"wandb could not start: no API key\n  fix: .*leave it out"),
        open_trackers(["trackio", "wandb"], tmp_path, CONFIG),
    ):
        pass
    (run,) = other.runs.values()
    assert run.ended == [{}]


def test_a_service_that_fails_on_the_way_is_left_out_and_the_run_continues(tmp_path, monkeypatch):
    broken, sound = install(monkeypatch, "wandb"), install(monkeypatch, "trackio")
    notes: list[str] = []
    with open_trackers(["wandb", "trackio"], tmp_path, CONFIG) as trackers:
        trackers.note = notes.append
        trackers.log(1, {"reward": 1.0})
        monkeypatch.setattr(broken, "log", lambda *_a, **_k: (_ for _ in ()).throw(OSError("gone")))
        trackers.log(2, {"reward": 1.0})
        trackers.log(3, {"reward": 1.0})
    (run,) = sound.runs.values()
    assert run.steps() == [1, 2, 3]
    assert len(notes) == 1 and "wandb failed" in notes[0] and "OSError: gone" in notes[0]
    assert json.loads((tmp_path / FILE).read_text())["wandb"]["step"] == 1


def test_a_damaged_record_of_runs_is_a_message(tmp_path):
    (tmp_path / FILE).write_text('{"tensorboard": {"id": 3}}')
    with (
        pytest.raises(UserError, match=r"trackers.json is damaged.*\n  fix: delete it"),
        open_trackers(["tensorboard"], tmp_path, CONFIG),
    ):
        pass


def test_a_row_shows_what_was_asked_answered_and_remembered():
    row = dict(zip(ROLLOUTS, rollout_row(episode(3)), strict=True))
    assert row["questions"] == "Where?\nWhen?" and row["expected"] == "Oslo or Norway\nMay"
    assert row["rollout"] == 3 and row["reward"] == 0.5 and row["failure"] == ""
    assert row["memory"] == "chunk 1: Ada is in\ufffd[31m Oslo\nchunk 2: add in May"
    failed = episode()
    failed.failure = Failure("policy", "Timeout", "late")
    assert rollout_row(failed)[-1] == "policy: Timeout: late"
    failed.ops[0] = MemoryOp("replace", {"text": "x" * 100_000}, "chunk 1")
    assert len(rollout_row(failed)[6]) < 9000


def test_a_cluster_tells_its_trackers_which_run_to_continue(tmp_path):
    first = tracker_environment(["wandb", "swanlab", "mlflow"], tmp_path, NAMED)
    assert first["WANDB_ENTITY"] == first["SWANLAB_WORKSPACE"] == "team"
    assert first["WANDB_RESUME"] == first["SWANLAB_RESUME"] == "allow"
    assert first["WANDB_TAGS"] == "a,b" and first["WANDB_RUN_GROUP"] == "sweep"
    assert tracker_environment(["wandb", "swanlab"], tmp_path, NAMED) == first
    assert first["WANDB_RUN_ID"] != first["SWANLAB_RUN_ID"]
    assert tracker_environment(["tensorboard"], tmp_path, NAMED) == {}

"""Trackers with their real packages, offline, where these are installed: what each has kept."""

from __future__ import annotations

import json
import sqlite3
import time

import pytest

from recollect.runs.tracker_services import TrackerConfig
from recollect.runs.trackers import FILE, open_trackers
from recollect.types import Episode, MemoryOp, Question, Task

NAMED = TrackerConfig("memories", run="first", tags=("a",), rollouts=3)


def train_twice(name: str, folder) -> None:
    """Log steps 0 to 4, be killed, and continue after step 2 up to step 6."""
    task = Task("t", (), (Question("Where?", ("Oslo",)),))
    ops = [MemoryOp("replace", {"text": "Ada is in Oslo"}, "chunk 1")]
    episode = Episode(task, 0, ops=ops, answers=["Oslo"], reward=1.0)
    for start, end in ((-1, 5), (2, 7)):
        with open_trackers([name], folder, {"lr": 0.1}, NAMED, start=start) as trackers:
            for step in range(start + 1, end):
                shown = [episode] if step % 2 == 0 else []
                trackers.log(step, {"reward": step / 10, "val/accuracy": 0.5}, shown)
            assert len(trackers.opened) == 1  # none has failed
        if name == "wandb":
            time.sleep(1)  # it names offline folders by the second, and a process starts in more


def test_trackio(tmp_path, monkeypatch):
    pytest.importorskip("trackio")
    # Trackio fixes its folder when it is first imported.
    storage = pytest.importorskip("trackio.sqlite_storage")
    monkeypatch.setattr(storage, "TRACKIO_DIR", tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    train_twice("trackio", tmp_path)
    with sqlite3.connect(tmp_path / "kept" / "memories.db") as database:
        rows = database.execute("SELECT run_name, step, metrics FROM metrics").fetchall()
    logged = [(step, json.loads(sent)) for _name, step, sent in rows]
    assert {name for name, *_ in rows} == {"first"}
    assert sorted((s, m["reward"]) for s, m in logged if "reward" in m) == [
        (step, step / 10) for step in range(7)
    ]
    assert sorted(s for s, m in logged if "rollouts" in m) == [0, 2, 4, 6]


def test_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # it would rather have a database
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "kept").as_uri())
    train_twice("mlflow", tmp_path)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("memories")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "first" and run.info.status == "FINISHED"
    assert run.data.params == {"lr": "0.1"} and run.data.tags["a"] == "true"
    history = client.get_metric_history(run.info.run_id, "reward")
    assert sorted((m.step, m.value) for m in history) == [(s, s / 10) for s in range(7)]
    tables = [artifact.path for artifact in client.list_artifacts(run.info.run_id, "rollouts")]
    assert tables == [f"rollouts/{step:06d}.json" for step in (0, 2, 4, 6)]


def log_records(path):
    """Read the records of a file in LevelDB's log format, behind wandb's seven bytes."""
    data, at, held = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        held += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield held
            held = b""


def test_wandb_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    records = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    train_twice("wandb", tmp_path)
    id = json.loads((tmp_path / FILE).read_text())["wandb"]["id"]
    steps, runs = [], set()
    for path in sorted(tmp_path.glob(f"wandb/offline-run-*/run-{id}.wandb")):
        for data in log_records(path):
            record = records.Record()
            record.ParseFromString(data)
            if record.HasField("run"):
                runs.add((record.run.run_id, record.run.project, record.run.display_name))
            items = {i.key or "/".join(i.nested_key): i.value_json for i in record.history.item}
            if "reward" in items:
                steps.append((record.history.step.num, json.loads(items["reward"])))
    assert runs == {(id, "memories", "first")}
    assert steps == [(step, step / 10) for step in range(7)]
    assert len(list(tmp_path.glob("wandb/offline-run-*/files/media/table/rollouts_*"))) == 4


def test_swanlab_offline(tmp_path, monkeypatch):
    pytest.importorskip("swanlab")
    monkeypatch.setenv("SWANLAB_MODE", "offline")
    train_twice("swanlab", tmp_path)
    id = json.loads((tmp_path / FILE).read_text())["swanlab"]["id"]
    folders = sorted((tmp_path / "swanlab").glob(f"run-*-{id}"))
    assert len(folders) == 2  # both parts of one experiment
    assert len(list((tmp_path / "swanlab").glob("run-*/media/echarts/*.json"))) == 4

"""Trackers get what is logged; a missing one is named with the package to install."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import pytest

from recollect.errors import UserError
from recollect.runs.trackers import KNOWN, open_trackers

CONFIG = {"lr": 0.001}


def read(folder, tag):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_tensorboard_reads_back_what_was_logged(tmp_path):
    (tracker,) = open_trackers(["tensorboard", "tensorboard"], tmp_path, "demo", CONFIG)
    tracker.log(1, {"reward": 0.5, "time/step": 2})
    tracker.log(2, {"reward": math.nan})
    tracker.close()
    (first, second) = read(tmp_path, "reward")
    assert first == (1, 0.5) and second[0] == 2 and math.isnan(second[1])
    assert read(tmp_path, "time/step") == [(1, 2.0)]


def test_tensorboard_forgets_what_a_resumed_run_makes_again(tmp_path):
    for start, reward in ((0, 0.25), (2, 0.75)):
        (tracker,) = open_trackers(["tensorboard"], tmp_path, "demo", CONFIG, start=start)
        for step in range(start + 1, 5):
            tracker.log(step, {"reward": reward})
        tracker.close()
    assert read(tmp_path, "reward") == [(1, 0.25), (2, 0.25), (3, 0.75), (4, 0.75)]


def test_an_unknown_tracker_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(UserError, match=r"no tracker 'tb'\n.*tensorboard, wandb, swanlab, trackio"):
        open_trackers(["tb"], tmp_path, "demo", CONFIG)


@pytest.mark.parametrize("name", KNOWN)
def test_a_missing_package_is_named(tmp_path, monkeypatch, name):
    for module in [m for m in sys.modules if m.split(".")[0] == name]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, name, None)  # makes the import fail, installed or not
    with pytest.raises(UserError, match=rf"{name} is not installed.*\n  fix: pip install {name}"):
        open_trackers([name], tmp_path, "demo", CONFIG)


@pytest.mark.parametrize("name", ["wandb", "swanlab", "trackio"])
def test_services_get_their_run_its_metrics_and_its_end(tmp_path, monkeypatch, name):
    calls = []
    service = SimpleNamespace(
        init=lambda **settings: calls.append(settings) or service,
        log=lambda metrics, step: calls.append((step, metrics)),
        finish=lambda: calls.append("finished"),
    )
    monkeypatch.setitem(sys.modules, name, service)
    (tracker,) = open_trackers([name], tmp_path, "demo", CONFIG)
    tracker.log(3, {"reward": 1.0})
    tracker.close()
    settings, *rest = calls
    assert settings["project"] == "recollect" and settings["config"] == CONFIG
    assert "demo" in (settings.get("name"), settings.get("experiment_name"))
    assert rest == [(3, {"reward": 1.0}), "finished"]


def test_a_service_that_cannot_start_is_a_message_and_closes_the_others(tmp_path, monkeypatch):
    def refuse(**_settings):
        raise RuntimeError("no API key")

    closed = []
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=refuse))
    run = SimpleNamespace(finish=lambda: closed.append(True))
    monkeypatch.setitem(sys.modules, "trackio", SimpleNamespace(init=lambda **_: run))
    with pytest.raises(
        UserError, match=r"wandb could not start: no API key\n  fix: .*leave it out"
    ):
        open_trackers(["trackio", "wandb"], tmp_path, "demo", CONFIG)
    assert closed == [True]

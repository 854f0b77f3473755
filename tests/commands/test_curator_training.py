"""`recollect train curator` as a user runs it: it measures, learns, and survives a kill."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from recollect.runs.run import read_metrics, without_times
from tests.support.warm import Warm

SMALL = [
    *("--rollout.tasks", "4", "--rollout.n", "4", "--val.tasks", "8", "--val.n", "2"),
    *("--val.temperature", "1", "--steps", "4", "--test-freq", "2", "--save-freq", "1"),
]


def start(folder: Path, *more: str, apart: bool = False) -> Warm:
    return Warm(["train", "curator", *more, "--folder", str(folder)], apart=apart)


def finish(process: Warm) -> str:
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, out + err
    return out


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """Return the folder of a short run that was never disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    assert "Report card" in finish(start(folder, *SMALL, apart=True))
    return folder / "curator"


def numbers(run: Path) -> list[dict[str, float]]:
    return [without_times(row) for row in read_metrics(run)]


def weights(run: Path) -> dict[str, bytes]:
    found = load_file(run / "model" / "model.safetensors")
    return {name: value.tobytes() for name, value in found.items()}


def test_a_run_measures_tools_growth_and_categories(whole):
    rows = numbers(whole)
    assert [row["step"] for row in rows if "val/accuracy" in row] == [0, 2, 4]
    last = rows[-1]
    assert last["episodes/failed"] == 0 and last["val/failed"] == 0
    assert last["val/n"] == last["val/single-hop/n"] == 16
    assert last["val/single-hop/accuracy"] == last["val/accuracy"]
    assert last["val/reward/low"] <= last["val/reward/mean"] <= last["val/reward/high"]
    for name in ("before", "answer", "efficiency", "growth/created", "growth/tokens", "turns"):
        assert f"score/{name}" in last and f"val/score/{name}" in last
    assert last["val/score/before"] == 0.0  # the world leaves everything to do
    assert 3 <= last["val/score/turns"] <= 4
    assert last["val/score/tools/calls/search_memory"] > 1.5
    assert last["val/score/tools/calls/manage_memory"] > 0.5
    assert last["val/score/tools/malformed"] < 0.1


def test_killed_and_resumed_it_ends_the_same(whole, tmp_path):
    process = start(tmp_path, *SMALL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if (tmp_path / "curator/checkpoints/step-000002").exists():
            break
        time.sleep(0.001)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert "resumed after step" in finish(start(tmp_path, *SMALL))
    assert numbers(tmp_path / "curator") == numbers(whole)
    assert weights(tmp_path / "curator") == weights(whole)


def test_the_reward_rises(tmp_path):
    """A few steps suffice: the intervals of the held-out reward before and after lie apart."""
    sizes = ("--rollout.tasks", "16", "--val.tasks", "256")
    finish(start(tmp_path, "--steps", "14", "--test-freq", "14", *sizes))
    rows = numbers(tmp_path / "curator")
    first, last = rows[0], rows[-1]
    assert last["val/reward/low"] > first["val/reward/high"] + 0.1

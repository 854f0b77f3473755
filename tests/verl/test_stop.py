"""A run on a cluster that gets SIGTERM saves after its step, ends with 143, and can be resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("verl")

SMALL = (
    *("--engine", "verl", "--cpu", "--steps", "4", "--rollout.tasks", "4", "--rollout.n", "4"),
    *("--updates-per-step", "2", "--val.tasks", "4", "--save-freq", "100", "--test-freq", "100"),
)


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    key = {"OPENAI_API_KEY": "test-key-1234567890-abcdefg"}  # not a secret
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "recollect",
            "train",
            "demo",
            *SMALL,
            "--folder",
            str(folder),
            *more,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | key,
    )


def test_sigterm_saves_after_the_step(tmp_path):
    run = tmp_path / "demo"
    metrics = run / "metrics.jsonl"
    process = start(tmp_path)
    deadline = time.monotonic() + 600
    while not (metrics.exists() and '"step": 1' in metrics.read_text()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    out = process.communicate(timeout=600)[0]
    assert process.returncode == 128 + signal.SIGTERM, out[-4000:]
    assert "resumes from the last checkpoint" in out and "test-key-1234" not in out
    saved = [int(p.name.rpartition("_")[2]) for p in (run / "checkpoints").glob("global_step_*")]
    steps = [line for line in metrics.read_text().splitlines() if '"step": ' in line]
    assert len(saved) == 1 and 1 <= saved[0] < 4 and len(steps) == saved[0] + 1
    assert not (run / ".stop").exists()
    process = start(tmp_path)
    out = process.communicate(timeout=900)[0]
    assert process.returncode == 0, out[-4000:]
    assert len(metrics.read_text().splitlines()) == 5

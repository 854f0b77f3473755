"""A cluster run that gets SIGTERM saves and ends with 143; one that is killed leaves nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("verl")

SMALL = (
    *("--engine", "verl", "--cpu", "--steps", "30", "--rollout.tasks", "2", "--rollout.n", "2"),
    *("--updates-per-step", "1", "--val.tasks", "2", "--save-freq", "100", "--test-freq", "100"),
)
KEY = "test-key-1234567890-abcdefg"  # not a secret


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "recollect", "train", "demo", *SMALL, "--folder", str(folder)]
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    marks = {"OPENAI_API_KEY": KEY, "CHAOS_MARK": str(folder)}
    with open(folder / "log", "a") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, text=True, env=os.environ | paths | marks
        )


def marked(folder: Path) -> list[str]:
    """List the processes that descend from a run in this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"CHAOS_MARK={folder}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:90])
        except OSError:  # it ended just now
            continue
    return [command for command in found if command]


def wait(happened: Callable[[], object], process: subprocess.Popen[str] | None, log: Path) -> None:
    deadline = time.monotonic() + 200
    while not happened():
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        assert process is None or process.poll() is None, log.read_text()[-4000:]
        time.sleep(0.1)


def steps(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_asked_between_two_steps_it_makes_one_more_which_is_saved(tmp_path, monkeypatch):
    """Nobody looks between the end of a step and the next: what was trained is not lost."""
    from recollect.engines.verl import stop
    from recollect.engines.verl.trainer import trainer

    done: list[str] = []
    monkeypatch.setattr(trainer.PPOTrainerSync, "step", lambda *_given: done.append("step"))
    run = trainer.MemoryTrainer.__new__(trainer.MemoryTrainer)
    frequency = SimpleNamespace(trainer=SimpleNamespace(save_freq=100))
    vars(run).update(run=tmp_path, config=frequency, _stepped=False, total_training_steps=9)
    monkeypatch.setattr(trainer.MemoryTrainer, "_save_checkpoint", lambda _own: done.append("save"))
    for run.global_steps in (1, 2):
        run.step({}, {})
    stop.ask(tmp_path)
    run.global_steps = 3
    run.step({}, {})
    assert done == ["step", "step", "step", "save"] and run._stopping
    run._stepped = False  # as when it has just begun
    with pytest.raises(stop.Stopped):
        run.step({}, {})
    assert len(done) == 4


@pytest.mark.timeout(900)
def test_sigterm_saves_after_the_step_and_sigkill_leaves_no_process(tmp_path):
    run, log = tmp_path / "demo", tmp_path / "log"
    process = start(tmp_path)
    wait(lambda: steps(run) >= 2, process, log)  # the start and the first step
    process.send_signal(signal.SIGTERM)
    process.wait(120)
    said = log.read_text()
    assert process.returncode == 128 + signal.SIGTERM, said[-4000:]
    assert "resumes from the last checkpoint" in said and KEY not in said
    (saved,) = (run / "checkpoints").glob("global_step_*")
    assert steps(run) == int(saved.name.rpartition("_")[2]) + 1, "all that was done is saved"
    assert not (run / ".stop").exists()
    wait(lambda: not marked(tmp_path), None, log)

    process = start(tmp_path)  # the same command goes on
    wait(lambda: any("ray::" in name for name in marked(tmp_path)), process, log)
    process.kill()
    process.wait()
    wait(lambda: not marked(tmp_path), None, log)

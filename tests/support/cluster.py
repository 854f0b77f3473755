"""Real runs through Ray, on CPUs: started, waited for, killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from recollect import files as disk
from recollect.config.train import TrainConfig
from recollect.engines.verl.cpu.keys import ENVIRONMENT, cpu_keys
from recollect.engines.verl.launch.start import ENTRY, environment, plan_launch, write_folder
from recollect.engines.verl.launch.translate import written
from recollect.errors import UserError

LIMIT = 900.0


def start(
    config: TrainConfig,
    *,
    ranks: int = 1,
    engine: str = "recollect",
    cluster: Mapping[str, str] | None = None,
    **keys: Any,
) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a run, in a running cluster where its environment is given; return process and log."""
    own = cpu_keys(ranks, engine, joins=bool(cluster)) | {
        name.replace("__", "."): v for name, v in keys.items()
    }
    plan = plan_launch(config, [f"{key}={written(value)}" for key, value in own.items()])
    write_folder(plan)
    log = plan.run.with_suffix(".log")
    with open(log, "ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", ENTRY, *plan.arguments],
            env=environment() | ENVIRONMENT | dict(cluster or {}),
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return process, log


def finish(process: subprocess.Popen[bytes], log: Path, code: int = 0) -> str:
    """Wait for the end of a run; return what it wrote."""
    try:
        got = process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        kill(process)
        got = -1
    text = log.read_text(errors="replace")
    assert got == code, f"exit status {got}\n{_told(text)}"
    return text


def run(config: TrainConfig, **settings: Any) -> Path:
    """Run to the end; return the run's folder."""
    finish(*start(config, **settings))
    return config.folder / config.name


def kill_when(process: subprocess.Popen[bytes], log: Path, happened: Callable[[], bool]) -> None:
    """Kill a run, with all that it started, as soon as something has happened."""
    deadline = time.monotonic() + LIMIT
    while not happened():
        ended = process.poll()
        assert ended is None, f"it ended first, with {ended}\n{_told(log.read_text())}"
        assert time.monotonic() < deadline, _told(log.read_text())
        time.sleep(0.05)
    kill(process)
    while not _released(log.with_suffix("")):  # Ray's workers notice a moment later
        assert time.monotonic() < deadline, "a worker of the killed run holds its folder"
        time.sleep(0.05)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to a run and to the Ray that it started, which is in its process group."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


def _released(folder: Path) -> bool:
    try:
        disk.lock(folder).close()
    except UserError:
        return False
    return True


def _told(text: str) -> str:
    lines = [line for line in text.splitlines() if "target_num_threads" not in line]
    return "\n".join(lines[-60:])

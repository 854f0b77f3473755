"""`recollect stages` as a user runs it: both roles learn, and a kill at any moment changes nothing.

Every fixed model is a server of its own process, spoken to over real HTTP on loopback.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from recollect.cli import main
from recollect.commands.stages.file import StagesOptions, read_plan
from recollect.commands.stages.record import show_plan
from recollect.commands.stages.run import run_stages
from recollect.errors import UserError
from recollect.runs.run import read_episodes, read_metrics, without_times
from tests.commands.test_damage import KINDS, well_behaved
from tests.support.own import own_folder
from tests.support.warm import Warm, cold

LEARNING = """
[settings]
test_freq = 100
save_freq = 100
val.tasks = 224
optim.lr = 1e-3
optim.warmup_steps = 1
rollout.tasks = 16

[[stages]]
train = "memory"
steps = 16

[[stages]]
train = "answer"
steps = 8
"""

TINY = """
[settings]
rollout.tasks = 3
rollout.n = 3
updates_per_step = 1
test_freq = 2
save_freq = 1
val.tasks = 6

[[stages]]
train = "memory"
steps = 3

[[stages]]
train = "answer"
steps = 2
optim.lr = 1e-3

[[stages]]
train = "memory"
steps = 3
"""


def start(folder: Path, text: str, *more: str, apart: bool = False) -> Warm:
    return Warm(command(folder, text, *more), apart=apart)


def command(folder: Path, text: str, *more: str) -> list[str]:
    folder.mkdir(exist_ok=True)
    (folder / "file.toml").write_text(text)
    return ["stages", str(folder / "file.toml"), *more, "--folder", str(folder)]


def finish(process: Warm | subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, out + err
    return out


def finished(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "file/stages.json").read_text())["finished"]


def servers(folder: Path) -> list[int]:
    """Find the processes that serve for the stages in a folder, by the log that each has open.

    A command line would miss a child that is forked and has not become its program yet.
    """
    found = set()
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # it ended just now
            log = str(path.readlink())
            if log.startswith(f"{folder}/") and log.endswith(".server.log"):
                found.add(int(path.parts[2]))
    return sorted(found)


def wait_for(process: Warm | None, happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not happened() and time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            return
        time.sleep(0.001)


def test_both_stages_raise_their_score(tmp_path):
    out = finish(start(tmp_path, LEARNING, "--no-end-to-end"))
    memory, answer = finished(tmp_path)
    assert (memory["trained"], answer["trained"]) == ("memory", "answer")
    assert memory["after"]["low"] > memory["before"]["high"]
    assert answer["after"]["low"] > answer["before"]["high"]
    # The pair that stage 1 leaves is the one that stage 2 begins with, each model now on the other
    # side of the wire: they say the same, token for token.
    assert answer["before"] == memory["after"]
    assert memory["after"]["failed"] == answer["after"]["failed"] == 0
    assert "2-answer" in out and "serving" in out
    assert not servers(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of three stages, and end to end, that were never disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    out = finish(start(folder, TINY, apart=True))
    assert "end-to-end" in out and "table.md" in out
    return folder


def numbers(folder: Path) -> dict[str, list[dict[str, float]]]:
    runs = sorted(path.parent for path in (folder / "file").glob("*/metrics.jsonl"))
    return {run.name: [without_times(row) for row in read_metrics(run)] for run in runs}


def weights(folder: Path) -> dict[str, bytes]:
    return {
        f"{path.parts[-3]} {name}": value.tobytes()
        for path in sorted((folder / "file").glob("*/model/model.safetensors"))
        for name, value in load_file(path).items()
    }


def test_three_stages_and_end_to_end_have_the_same_episodes(whole):
    rows = finished(whole)
    assert [r["name"] for r in rows] == ["1-memory", "2-answer", "3-memory", "end-to-end"]
    assert [r["episodes"] for r in rows] == [27, 18, 27, 72]
    assert [r["lr"] for r in rows] == [5e-4, 1e-3, 5e-4, 5e-4]
    assert [r["start"] for r in rows] == ["base", "base", "1-memory", "base"]
    table = (whole / "file/table.md").read_text()
    assert [line.split("|")[1].strip() for line in table.splitlines()[2:7]] == [
        *("nothing", "1-memory", "2-answer", "3-memory", "end-to-end")
    ]
    assert len(weights(whole)) and not servers(whole)


def test_stopped_in_every_stage_it_ends_with_the_same_table(whole, tmp_path):
    runs = tmp_path / "file"
    moments: list[tuple[int, Callable[[], object]]] = [
        (signal.SIGKILL, lambda: (runs / "1-memory.server.log").exists()),  # its server starts
        (signal.SIGHUP, lambda: (runs / "1-memory/checkpoints/step-000001").exists()),
        (signal.SIGKILL, lambda: (runs / "2-answer/model/config.json").exists()),  # being exported
        (signal.SIGTERM, lambda: (runs / "3-memory/checkpoints/step-000002").exists()),
    ]
    for number, happened in moments:
        process = start(tmp_path, TINY)
        wait_for(process, happened)
        process.send_signal(number)
        out = "".join(process.communicate(timeout=120))
        assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), out
        assert "Traceback" not in out
        wait_for(None, lambda: not servers(tmp_path))
        assert not servers(tmp_path)  # no server outlives the one that it was for
    out = finish(start(tmp_path, TINY))
    assert "finished earlier" in out and "resumed after step" in out
    assert (runs / "table.md").read_text() == (whole / "file/table.md").read_text()
    assert numbers(tmp_path) == numbers(whole)
    assert weights(tmp_path) == weights(whole)


def test_a_finished_stage_is_not_silently_run_with_other_settings(whole):
    before = (whole / "file/stages.json").read_bytes()
    process = start(whole, TINY.replace("optim.lr = 1e-3", "optim.lr = 2e-3"))
    out = "".join(process.communicate(timeout=120))
    assert process.returncode == 2 and "Traceback" not in out
    assert "2-answer was finished with other settings" in out and "optim.lr: 0.001 then" in out
    assert (whole / "file/stages.json").read_bytes() == before


def test_a_dry_run_says_how_far_it_is(whole, tmp_path, capsys):
    for folder, state in ((whole, "finished"), (tmp_path, "to do")):
        assert main(command(folder, TINY, "--dry-run")) == 0
        assert capsys.readouterr().out.count(state) == 4
    assert not (tmp_path / "file").exists()


FILES = ("file/stages.json", "file/table.md", "file/1-memory/config.json", "file.toml")
NEVER_READ = ("cut short", "a flipped bit", "empty", "NUL bytes", "noise", "deep JSON")
NEVER_READ += ("a folder in its place", "a link to itself", "a pipe in its place")


def status_of(work: Callable[[], object]) -> int:
    """Do what a command does, and end as it would."""
    try:
        work()
    except UserError as error:
        print(f"recollect: {error}", file=sys.stderr)
        return 2
    return 0


def test_damage_is_one_message_and_nothing_is_run_again(whole, capsys):
    """Damage a file where it is: what a stage was run with names its folder."""
    copy, file = whole / "copy", whole / "file.toml"
    file.write_text(TINY)
    options = StagesOptions(str(file), folder=whole)
    plan = read_plan(options)
    for number, (kind, spoil) in enumerate(KINDS.items()):
        for name in FILES[: 3 + (number % 6 == 0)]:  # reading the plan takes a while
            path = whole / name
            # What can be read may say that a stage is to be run: this only shows it.
            work = partial(run_stages if kind in NEVER_READ else show_plan, plan)
            work = partial(read_plan, options) if name == "file.toml" else work
            path.rename(copy)
            shutil.copy(copy, path)
            try:
                spoil(path, random.Random(f"{name}/{kind}"))
                well_behaved(partial(status_of, work), (name, kind), whole, capsys)
            finally:
                gone(path)
                copy.rename(path)


def gone(path: Path) -> None:
    """Remove whatever is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


OWN = """
end_to_end = false
[settings]
rollout.tasks = 2
rollout.n = 2
updates_per_step = 1
val.tasks = 4
val.lengths = []

[[stages]]
train = "answer"
steps = 1
"""


def test_an_agent_a_reward_and_tasks_of_your_own_are_trained_in_a_stage(tmp_path, monkeypatch):
    with own_folder(tmp_path, monkeypatch):
        parts = ["--agent", "mine:two_pass", "--reward", "mine:long", "--tasks", "mine:Chess"]
        out = finish(cold(command(tmp_path, OWN, *parts)))  # its server is no fork either
    run = tmp_path / "file/1-answer"
    table = json.loads((run / "config.json").read_text())
    assert table["agent"]["class"] == "mine:two_pass" and (run / "code/mine.py").is_file()
    row = read_metrics(run)[-1]
    assert row["step"] == 1 and row["episodes/failed"] == 0 and "1-answer" in out
    episodes = read_episodes(run / "episodes/val-000001.jsonl.gz")
    roles = {c.role: c.trainable for e in episodes for c in e.contexts if c.turns}
    assert roles == {"memory": False, "answer": True}  # the memory's turns came from the server

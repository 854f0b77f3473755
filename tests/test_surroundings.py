"""Odd surroundings of a command: closed streams, no width, no folder to write to or to be in."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from recollect.engines.verl.doctor.nodes import ask_nodes
from recollect.errors import UserError
from tests.support.viewing import planted
from tests.support.warm import Warm


def recollect(command: str, folder: Path, **environment: str) -> tuple[int, str, str]:
    """Run a shell's line in which RECOLLECT is the program."""
    own = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment}
    line = command.replace("RECOLLECT", f"{sys.executable} -m recollect")
    ran = subprocess.run(["bash", "-c", line], cwd=folder, env=own, capture_output=True, timeout=60)
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    metrics = planted(folder) / "metrics.jsonl"
    counted = '"val/n": 6, "val/failed": 1, "val/accuracy"'
    metrics.write_text(metrics.read_text().replace('"val/accuracy"', counted))
    return folder


def test_closed_streams_are_neither_a_traceback_nor_a_damaged_file(runs):
    for closed in (">&-", "<&- >&- 2>&-"):
        assert recollect(f"RECOLLECT report planted {closed}", runs) == (0, "", "")
    text = (runs / "planted" / "report.md").read_text()
    assert text.startswith("#")
    status, _, said = recollect("RECOLLECT ask - 'Who is it?' --model x <&-", runs)
    assert status == 2 and "there is no text in -" in said and "Traceback" not in said


def test_a_width_of_nothing_is_no_width(runs):
    plain = recollect("RECOLLECT runs .", runs)
    assert plain[0] == 0 and "planted" in plain[1]
    for width in ("0", "-5", "abc", ""):
        shown = Warm(["runs", "."], cwd=runs, COLUMNS=width)
        out, said = shown.communicate()
        assert (shown.returncode, out, said) == plain
    assert recollect("RECOLLECT runs .", runs, TERM="dumb", LC_ALL="C")[0] == 0


def test_a_current_folder_that_is_gone_is_one_message(tmp_path):
    (tmp_path / "gone").mkdir()
    line = "rmdir ../gone; RECOLLECT doctor"
    status, out, said = recollect(line, tmp_path / "gone")
    assert (status, out) == (2, "") and "Traceback" not in said
    assert said.startswith("recollect: the current folder cannot be used") and "fix: " in said


def test_names_are_shown_as_they_are_and_never_read_as_markup(runs, tmp_path):
    (tmp_path / "[").mkdir()
    (tmp_path / "[" / "red].txt").write_text("Anna keeps the key.")
    asked = Warm(["ask", ".", "Who is it?", "--model", "nowhere"], cwd=tmp_path)
    out, said = asked.communicate(timeout=60)
    assert asked.returncode == 2 and "[/red].txt" in out and "nowhere" in said
    assert "Traceback" not in said


def test_no_room_for_temporary_files_is_one_message(tmp_path):
    def no_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    own = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    own |= {"TMPDIR": str(tmp_path / "missing")}
    own.pop("TORCHINDUCTOR_CACHE_DIR", None)  # torch sets it once it has found such a folder
    pipe = subprocess.PIPE
    commands = {
        verb: subprocess.Popen(
            [sys.executable, "-m", "recollect", *verb.split()],
            **{"cwd": tmp_path, "env": own, "stdout": pipe, "stderr": pipe, "text": True},
            preexec_fn=no_files,
        )
        for verb in ("train demo --steps 1", "doctor")
    }
    said = {verb: command.communicate(timeout=60) for verb, command in commands.items()}
    train, doctor = commands.values()
    out, error = said["train demo --steps 1"]
    assert (
        train.returncode == 1
        and out == ""
        and error
        == (
            "recollect: there is no folder for temporary files\n"
            "  fix: set TMPDIR to a folder that you may write to and that has room\n"
        )
    )
    out, error = said["doctor"]
    assert doctor.returncode == 1 and error == "" and "set TMPDIR to a folder" in out
    assert "torch does not load" not in out


def test_a_full_disk_for_temporary_files_is_one_message(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(UserError, match="no temporary file can be written") as raised:
            ask_nodes()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "TMPDIR" in raised.value.fix

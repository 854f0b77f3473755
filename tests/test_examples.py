"""Every example runs as it is, says what it should, and stays small."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys

import pytest

from recollect.commands.api import preset, with_overrides
from recollect.engines.verl.launch.translate import translate
from tests.support.places import ROOT

EXAMPLES = ROOT / "examples"
SAID = {
    "agent_with_tool": r"answer \\boxed\{12\.5\}, reward 1\.0, edits 1",
    "mcp_tools": r"answer \\boxed\{the moon\}, reward 1\.0",
    "memory_store": r"memory_4  Ann has two cats.*store 2 entries, trial 1.*replayed: True",
    "own_agent": r"Held-out accuracy.* 32 .*reward by step: \[.*"
    r"held-out accuracy 0\.\d+ \[0\.\d+, 0\.\d+\], n 32",
    "own_reward": r"step 5: right 0\.\d+, words \d\.\d+, reward -?0\.\d+",
    "own_tasks": r"4x the text: [01]\.\d+ \[",
    "side_by_side": r"fold .*rag .*first_chunk .*report in evaluations/",
}
TRAINING = ("own_agent", "own_reward", "own_tasks")


def test_there_are_seven_small_ones():
    assert sorted(SAID) == sorted(path.stem for path in EXAMPLES.glob("*.py"))
    assert all(len(path.read_text().splitlines()) < 50 for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", sorted(set(SAID) - set(TRAINING)))
def test_an_example_runs(name, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert re.search(SAID[name], done.stdout, re.S)


@pytest.mark.parametrize("name", TRAINING)
def test_an_example_learns(name, tmp_path, monkeypatch, capsys):
    """In this process, which has torch already; as a script all the same."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr()
    assert not printed.err
    assert re.search(SAID[name], printed.out, re.S)
    folder = tmp_path / "runs" / name
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert sum(row.get("train/grad_norm", 0) for row in rows) > 0
    assert not sum(row.get("episodes/failed", 0) for row in rows)
    assert (folder / "model" / "config.json").exists()
    if name == "own_agent":
        check_agent(rows)
        assert "recollect eval" not in printed.out + (folder / "report.md").read_text()
    if name == "own_reward":
        check_reward(rows)


def check_agent(rows: list[dict[str, float]]) -> None:
    """It opens a chat for every chunk and question, and trains all that it samples."""
    last = rows[-1]
    task = preset("demo").tasks.task(0)
    assert last["step"] == 5
    assert last["contexts/per_episode"] == len(task.chunks) + len(task.questions)
    assert last["tokens/trained"] == last["tokens/sampled"] > 0


def check_reward(rows: list[dict[str, float]]) -> None:
    """What was paid is what the example says."""
    assert [row["step"] for row in rows] == list(range(6))
    for row in rows[1:]:
        paid = row["score/answer"] - 0.1 * row["score/words"]
        assert row["reward/mean"] == pytest.approx(paid)


@pytest.mark.parametrize(
    ("name", "setting", "part"),
    [("own_agent", "agent", "two_pass"), ("own_reward", "reward", "Short")],
)
def test_the_same_parts_run_on_a_cluster(name, setting, part, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module = __import__(name)
    monkeypatch.delitem(sys.modules, name)
    own = getattr(module, part)
    config = with_overrides(preset("demo"), {setting: own() if isinstance(own, type) else own})
    assert translate(config, tmp_path)["recollect.run"] == str(tmp_path)

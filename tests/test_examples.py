"""Every example runs as it is, says what it should, and stays small."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

EXAMPLES = ROOT / "examples"
SAID = {
    "agent_with_tool": r"answer \\boxed\{12\.5\}, reward 1\.0, edits 1",
    "memory_store": r"memory_4  Ann has two cats.*store 2 entries, trial 1.*replayed: True",
    "own_agent": r"reward by step: \[.*held-out accuracy 0\.\d+ \[0\.\d+, 0\.\d+\], n 32",
    "own_reward": r"step 5: right 0\.\d+, words \d\.\d+, reward -?0\.\d+",
    "own_tasks": r"4x the text: [01]\.\d+ \[",
    "side_by_side": r"fold .*rag .*first_chunk .*report in evaluations/",
}


def run(name: str, folder: Path) -> str:
    """Run an example as a reader would."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def test_there_are_six_small_ones():
    assert sorted(SAID) == sorted(path.stem for path in EXAMPLES.glob("*.py"))
    assert all(len(path.read_text().splitlines()) < 50 for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", sorted(SAID))
def test_an_example_runs(name, tmp_path):
    assert re.search(SAID[name], run(name, tmp_path), re.S)
    if name == "own_reward":
        check_reward(tmp_path / "runs" / "own_reward")


def check_reward(folder: Path) -> None:
    """What was paid is what the example says, and something was learned from it."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(6))
    for row in rows[1:]:
        paid = row["score/answer"] - 0.1 * row["score/words"]
        assert row["reward/mean"] == pytest.approx(paid)
    assert sum(row.get("train/grad_norm", 0) for row in rows) > 0

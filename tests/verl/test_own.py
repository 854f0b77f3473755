"""Your own agent, reward and tasks on the cluster, from the command line, unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.runs.episodes import read_episodes
from recollect.runs.run import read_metrics
from tests.support.own import MINE

SMALL = [
    *("--steps", "2", "--rollout.tasks", "2", "--rollout.n", "4", "--updates-per-step", "1"),
    *("--val.tasks", "4", "--test-freq", "2", "--save-freq", "2", "--val.lengths", "1"),
]


@pytest.mark.parametrize(
    "words",
    [
        ["--agent", "mine:two_pass"],
        ["--agent", "mine:Seeker", "--tools", "mine:shout,mine:whisper", "--tasks", "mine:Chess",
         "--memory", "mine:Notebook", "--agent.limits.max-turn-tokens", "6",
         "--reward", "mine:Thrifty"],
    ],
)  # fmt: skip
def test_two_steps_through_verl(words, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    here = Path(__file__).parents[2]
    command = [sys.executable, "-m", "recollect.cli", "train", "demo", *words, *SMALL]
    done = subprocess.run(
        [*command, "--engine", "verl", "--cpu"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(here / "src")},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    run = tmp_path / "runs/demo"
    assert (run / "code/mine.py").read_text() == MINE
    rows = read_metrics(run)
    assert rows[-1]["step"] == 2 and rows[-1]["train/grad_norm"] >= 0
    assert rows[-1]["tokens/trained"] == rows[-1]["tokens/sampled"] > 0
    episodes = list(read_episodes(run / "episodes/val-000002.jsonl.gz"))
    assert len(episodes) == 4 and all(episode.ok for episode in episodes)
    assert {context.role for e in episodes for context in e.contexts} == {"memory", "answer"}
    if "mine:Seeker" in words:
        assert rows[-1]["score/edits"] == 3  # of the memory, by the reward, both one's own
        assert all("calls/whisper" in e.contexts[0].counts for e in episodes)

"""A run is an object: it is measured, continued and listed by its folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from recollect.cli import main
from recollect.config.starting import starting_point

ROW = re.compile(
    r"(after|\d+x(?: the text)?) +(\d\.\d{3}) +(\d\.\d{3}) to (\d\.\d{3}).* (\d+) +(\d+)"
)
SMALL = [
    *("--steps", "2", "--rollout.tasks", "3", "--rollout.n", "3", "--updates-per-step", "1"),
    *("--val.tasks", "24", "--val.lengths", "2", "--val.length-tasks", "16", "--test-freq", "2"),
]
OTHER = [
    *("--tasks.chunks", "4", "--tasks.distractors", "1", "--agent.max-answer-tokens", "7"),
    *("--agent.prompts.answer", "{problem}\nMemory: {memory}\nThe answer:"),
    *("--seed", "3", "--val.n", "2", "--val.temperature", "0.8"),
]


def train(folder: Path, name: str, *more: str) -> None:
    assert main(["train", "demo", "--folder", str(folder), "--name", name, *SMALL, *more]) == 0


def rows(text: str) -> dict[str, tuple[str, ...]]:
    found = {m[1].split(" ")[0]: m.groups()[1:] for m in ROW.finditer(text)}
    return {"1x" if name == "after" else name: figures for name, figures in found.items()}


@pytest.mark.parametrize("more", [(), tuple(OTHER)])
def test_the_printed_next_command_gives_the_cards_figures(tmp_path, capsys, more):
    train(tmp_path, "one", *more)
    card = capsys.readouterr().out
    command = re.search(r"next: `recollect (.*)`", (tmp_path / "one" / "report.md").read_text())
    assert command is not None
    assert main(command[1].split()) == 0
    measured = rows(capsys.readouterr().out)
    assert measured and measured == rows(card)


def test_a_run_is_continued_from_its_folder_alone(tmp_path, capsys):
    train(tmp_path, "one", "--tasks.chunks", "4")
    moved = (tmp_path / "one").rename(tmp_path / "moved")
    assert main(["train", str(moved), "--steps", "3"]) == 0
    steps = [
        json.loads(line)["step"] for line in (moved / "metrics.jsonl").read_text().splitlines()
    ]
    assert steps == [0, 1, 2, 3] and not (tmp_path / "one").exists()
    assert starting_point(str(moved)).tasks.chunks == 4
    capsys.readouterr()
    assert main(["runs", str(tmp_path)]) == 0
    listed = capsys.readouterr().out
    assert "Recall" in listed and "FoldAgent" in listed and "3 of 3" in listed
    assert "finished" in listed


def test_what_is_no_run_is_one_line(tmp_path, capsys):
    assert main(["eval", str(tmp_path)]) == 2
    assert "is not the folder of a run" in capsys.readouterr().err
    assert main(["runs", str(tmp_path)]) == 2
    assert "there are no runs in" in capsys.readouterr().err
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_text(json.dumps({"tasks": {}, "agent": {}}))
    assert main(["train", str(tmp_path / "old")]) == 2
    assert "was written by another version" in capsys.readouterr().err
    assert main(["runs", str(tmp_path)]) == 0
    assert "damaged" in capsys.readouterr().out

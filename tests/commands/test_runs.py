"""A run is an object: it is measured, continued and listed by its folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from recollect.cli import main
from recollect.commands.runs import describe
from recollect.config.starting import starting_point
from tests.support.warm import Warm

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


def test_an_evaluation_among_runs_is_not_called_damaged(tmp_path):
    (tmp_path / "config.json").write_text('{"identity": {}, "agents": {}}')
    assert describe(tmp_path).state == "an evaluation: see its report.md"


@pytest.mark.parametrize("more", [(), tuple(OTHER)])
def test_the_printed_next_command_gives_the_cards_figures(tmp_path, capsys, more):
    train(tmp_path, "one", *more)
    card = capsys.readouterr().out
    command = re.search(r"next: `recollect (.*)`", (tmp_path / "one" / "report.md").read_text())
    assert command is not None
    assert main(command[1].split()) == 0
    measured = rows(capsys.readouterr().out)
    assert measured and measured == rows(card)


def next_of(run: Path) -> list[str]:
    found = re.search(r"next: `recollect (.*)`", (run / "report.md").read_text())
    assert found is not None
    return found[1].split()


def test_a_curators_next_command_gives_its_figures(tmp_path, capsys):
    small = ["--rollout.tasks", "2", "--rollout.n", "2", "--val.tasks", "6", "--val.n", "2"]
    small += ["--steps", "1", "--test-freq", "1", "--val.temperature", "1", "--seed", "2"]
    assert main(["train", "curator", "--folder", str(tmp_path), *small]) == 0
    card = capsys.readouterr().out
    assert main(next_of(tmp_path / "curator")) == 0
    said = capsys.readouterr().out
    assert rows(said) and rows(said) == rows(card)
    reward = re.search(r"^reward +(\S+ \[.*\])", said, re.M)
    assert reward is not None and f"to {reward[1]}" in card


def test_the_next_command_of_a_run_on_ones_own_jsonl(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [
        {"chunks": [f"Ann's {thing} is elm.", "Nothing."], "question": "Which?", "answer": "elm"}
        for thing in map(str, range(60))
    ]
    Path("mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    small = ["--test-freq", "2", "--steps", "2"]
    small += ["--rollout.tasks", "3", "--rollout.n", "3", "--updates-per-step", "1"]
    small += ["--agent.max-answer-tokens", "9"]
    assert main(["train", "demo", "--name", "own", "--tasks", "jsonl:mine.jsonl", *small]) == 0
    card = capsys.readouterr().out
    read = re.search(r"mine.jsonl: 60 tasks read, (\d+) for training and (\d+) held out", card)
    assert read is not None and int(read[1]) + int(read[2]) == 60 and 0 < int(read[2]) < 20
    assert main(next_of(Path("runs/own"))) == 0
    measured = rows(capsys.readouterr().out)
    assert measured and measured == rows(card)


STAGES = """preset = "two_stage"
end_to_end = false
[settings]
updates_per_step = 1
rollout.tasks = 2
rollout.n = 2
val.tasks = 8
val.lengths = []
[[stages]]
train = "memory"
steps = 1
[[stages]]
train = "answer"
steps = 1
"""


def run(*command: str) -> str:
    process = Warm(command)
    out, err = process.communicate()
    assert process.returncode == 0, out + err
    return out


def test_a_stage_is_measured_with_the_model_it_was_trained_beside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("two.toml").write_text(STAGES)
    run("stages", "two.toml")
    for name in ("1-memory", "2-answer"):
        said = run(*next_of(Path("runs/two") / name))
        mean, low, high, n, failed = rows(said)["1x"]
        card = (Path("runs/two") / name / "report.md").read_text()
        assert f"| after | {mean} | {low} to {high} | {n} | {failed} |" in card
    Path("runs/two").rename("moved")  # both runs, wherever they are
    said = run("eval", "moved/2-answer", "--n", "4")
    assert "moved/1-memory/model as memory" in said.replace("\n", "") and "FIXED" in said


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


def test_a_run_is_an_agent_beside_others_and_is_scored_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    train(Path("runs"), "one")
    capsys.readouterr()
    assert main(["report", "runs/one"]) == 0
    card = (Path("runs/one/report.md")).read_text()
    said = capsys.readouterr().out
    mean, low, high, n, failed = (
        re.findall(r"\| after \|([^\n]*)\|", card)[0].replace(" to ", "|").split("|")
    )
    assert all(figure.strip() in said for figure in (mean, low, high, n, failed))
    Path("own_score.py").write_text("def half(prediction, answers):\n    return 0.5\n")
    assert main(["replay", "runs/one", "--metrics", "sub_exact_match,own_score.py:half"]) == 0
    said = capsys.readouterr().out
    last = [line for line in said.splitlines() if line.startswith("2 ")]
    assert "answer" in last[0] and mean.strip() in last[0] and "sub_exact_match" in last[1]
    assert "own_score.py:half" in last[2] and "0.500" in last[2]

    common = ["eval", "--tasks", "recall:diary", "--n", "4", "--no-closed-book"]
    assert main([*common, "--agents", "fold,runs/one", "--out", "both"]) == 0
    config = json.loads(Path("both/config.json").read_text())
    assert "with its model" in config["agents"]["runs/one"]
    assert "{problem}\\n{chunk}\\nMemory: {memory}" in config["agents"]["runs/one"]  # its prompts
    assert config["model"]["memory"]["folder"].endswith("runs/one/model")  # nobody named another
    base = str(starting_point("demo").model.path)
    own = ["--agents", "runs/one", "--model", base]
    assert main([*common, *own, "--no-run-models", "--out", "other"]) == 0
    config = json.loads(Path("other/config.json").read_text())
    assert "with its model" not in config["agents"]["runs/one"]
    capsys.readouterr()
    assert main([*common, "--agents", "fold", "--model", "runs/one", "--out", "named"]) == 0
    config = json.loads(Path("named/config.json").read_text())
    assert config["model"]["memory"]["folder"] == "runs/one/model"
    capsys.readouterr()
    (Path("runs/one/model") / "config.json").unlink()
    for words in (own, ["--model", "runs/one"]):
        assert main([*common, *words, "--out", "third"]) == 2
        assert "has no trained model yet" in capsys.readouterr().err


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

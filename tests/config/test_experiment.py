"""Experiments in files: what they ask for, what is beside them, and mistakes with their lines."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from recollect.config.experiment import read_experiment
from recollect.config.stored import write_settings
from recollect.errors import UserError

TOML = """preset = "demo"
seeds = [0, 7]
steps = 3

[rollout]
tasks = 4

[agent]
class = "fold"
max_memory_tokens = 5

[grid]
optim.lr = [1e-4, 5e-4]
"rollout.n" = [2]
"""
YAML = """preset: demo
seeds: [0, 7]
steps: 3
rollout:
  tasks: 4
agent: {class: fold, max_memory_tokens: 5}
grid:
  optim.lr: [1e-4, 5e-4]
  rollout:
    n: [2]
"""


def written(folder: Path, text: str, name: str = "e.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def as_json(_text: str) -> str:
    grid = {"optim.lr": [1e-4, 5e-4], "rollout.n": [2]}
    agent = {"class": "fold", "max_memory_tokens": 5}
    return json.dumps(
        {"preset": "demo", "seeds": [0, 7], "steps": 3, "rollout": {"tasks": 4}, "agent": agent}
        | {"grid": grid}
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("e.toml", TOML),
        ("e.toml", f"\ufeff{TOML}"),  # as editors on Windows save it
        ("e.yaml", YAML),
        ("e.yml", YAML),
        ("e.json", as_json("")),
    ],
)
def test_every_combination_is_a_run(tmp_path, name, text):
    experiment = read_experiment(written(tmp_path, text, name))
    runs = experiment.runs()
    assert [run.config.name for run in runs] == [
        "lr-0.0001_n-2_seed-0",
        "lr-0.0001_n-2_seed-7",
        "lr-0.0005_n-2_seed-0",
        "lr-0.0005_n-2_seed-7",
    ]
    assert [(run.config.optim.lr, run.config.seed) for run in runs] == [
        (1e-4, 0), (1e-4, 7), (5e-4, 0), (5e-4, 7),
    ]  # fmt: skip
    config = runs[0].config
    assert (config.steps, config.rollout.tasks, config.rollout.n) == (3, 4, 2)
    assert config.agent.max_memory_tokens == 5 and config.agent.max_answer_tokens == 6  # the demo's
    assert config.folder == Path("runs/e")


@pytest.mark.parametrize(
    ("old", "new", "line", "fix"),
    [
        ("steps = 3", "stepps = 3", 3, "choose from steps"),
        ("seeds = [0, 7]", "seed = [0, 7]", 2, "seed"),
        ("seeds = [0, 7]", "seeds = 3", 2, "seeds = [0, 1, 2]"),
        ("seeds = [0, 7]", "seeds = [1, 1]", 2, "each once"),
        ("tasks = 4", 'tasks = "4"', 6, "integer"),
        ("tasks = 4", "taks = 4", 6, "rollout.tasks"),
        ("[rollout]", "[rolout]", 5, "choose from rollout"),
        ("max_memory_tokens", "max_memory_tokns", 10, "agent.max_memory_tokens"),
        ('class = "fold"', 'class = "flod"', 8, "fold"),
        ("optim.lr =", "optim.lrr =", 13, "optim.lr"),
        ('"rollout.n" = [2]', '"rollout.m" = [2]', 14, "rollout.n"),
        ('"rollout.n" = [2]', '"rollout.n" = 2', 14, "list the values"),
        ('"rollout.n" = [2]', '"rollout.n" = ["2"]', 14, "integer"),
        ('"rollout.n" = [2]', "name = [2]", 14, "leave it out"),
        ('preset = "demo"', 'preset = "dmeo"', 1, "demo"),
        ("steps = 3", "steps = ", 3, "correct that line"),
    ],
)
def test_a_mistake_names_the_file_and_the_line(tmp_path, old, new, line, fix):
    path = written(tmp_path, TOML.replace(old, new))
    with pytest.raises(UserError) as caught:
        read_experiment(path)
    text = str(caught.value)
    assert str(path) in text and f"line {line}" in text and fix in text
    assert "\n" not in caught.value.what


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("e.yaml", YAML.replace("tasks: 4", "taks: 4"), "line 5"),
        ("e.yaml", YAML.replace("steps: 3", "steps: 3\nsteps: 4"), "line 4"),
        ("e.yaml", "preset: [demo", "line 1"),
        ("e.yaml", "a: !!python/object/apply:os.system [ls]", "line 1"),
        ("e.json", '{\n "preset": "demo",\n "rollout": {\n  "taks": 4}}', "line 4"),
        ("e.json", '{"steps": 3, "steps": 4}', "twice"),
        ("e.toml", "[[stages]]\ntrain = 'memory'\n", "recollect stages"),
        ("e.yaml", "- 1\n", "no table of settings"),
    ],
)
def test_mistakes_in_every_format(tmp_path, name, text, line):
    with pytest.raises(UserError) as caught:
        read_experiment(written(tmp_path, text, name))
    assert line in str(caught.value)


def test_a_point_that_cannot_be_is_refused_before_anything_starts(tmp_path):
    text = 'preset = "demo"\nupdates_per_step = 2\n[grid]\nrollout.tasks = [4, 1]\n'
    with pytest.raises(UserError, match="2 updates cannot share 1 tasks"):
        read_experiment(written(tmp_path, text))


def test_what_is_relative_is_beside_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    (tmp_path / "own_parts_beside.py").write_text(
        "async def run(task, chats, memory):\n    return []\n"
    )
    row = {"chunks": ["a"], "questions": [{"text": "q", "answers": ["a"]}]}
    (tmp_path / "mine.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "model").mkdir()
    text = """agent = "own_parts_beside.py:run"
tasks = "jsonl:mine.jsonl"
model.path = "model"
folder = "out"
embed.cache = "vectors"
"""
    config = read_experiment(written(tmp_path, text)).base
    assert config.agent.function is sys.modules["own_parts_beside"].run
    assert config.tasks.file == tmp_path / "mine.jsonl"
    assert config.model.path == str(tmp_path / "model")
    assert config.folder == tmp_path / "out" and config.embed.cache == tmp_path / "vectors"
    by_name = written(tmp_path, 'agent = "own_parts_beside:run"\nmodel.path = "org/name"\n')
    config = read_experiment(by_name).base
    assert config.agent.function is sys.modules["own_parts_beside"].run
    assert config.model.path == "org/name" and config.folder == Path("runs")


def test_a_grid_over_parts_and_their_settings(tmp_path):
    text = '[grid]\nagent = ["fold", "gated"]\n"agent.max_memory_tokens" = [3, 4]\n'
    runs = read_experiment(written(tmp_path, text)).runs()
    assert [(type(r.config.agent).__name__, r.config.agent.max_memory_tokens) for r in runs] == [
        ("FoldAgent", 3),
        ("FoldAgent", 4),
        ("GatedAgent", 3),
        ("GatedAgent", 4),
    ]


def test_the_settings_of_a_run_are_such_a_file(tmp_path):
    config = read_experiment(written(tmp_path, "steps = 3\nrollout.n = 5\n")).base
    write_settings(tmp_path / "config.json", config)
    again = json.loads((tmp_path / "config.json").read_text())
    copy = written(tmp_path, json.dumps(again), "copy.json")
    assert read_experiment(copy).base == config
    more = written(tmp_path, json.dumps({**again, "seeds": [1, 2]}), "more.json")
    assert [run.config.seed for run in read_experiment(more).runs()] == [1, 2]
    wrong = written(tmp_path, json.dumps({**again, "sedes": [1]}), "wrong.json")
    with pytest.raises(UserError, match="choose from seeds"):
        read_experiment(wrong)

"""`recollect train FILE`: all runs of an experiment, resumed, and one table over seeds."""

from __future__ import annotations

import json
import math
import re
import signal
import time
from pathlib import Path

import pytest

from recollect.accuracy import Accuracy
from recollect.cli import main
from recollect.commands.experiment import read_results
from recollect.commands.experiment_table import over_seeds
from recollect.config.experiment import read_experiment
from tests.support.warm import Warm

DOCS = Path(__file__).parents[2] / "docs"


def documented() -> str:
    """Return the first file of the page, word for word."""
    found = re.search(r"^```toml\n(.*?)^```", (DOCS / "experiments.md").read_text(), re.M | re.S)
    assert found is not None
    return found[1]


def small(**changes: str) -> str:
    text = documented().replace("seeds = [0, 1, 2]", "seeds = [0, 1]")
    text = text.replace("optim.lr = [1e-4, 5e-4]", "optim.lr = [5e-4]")
    for old, new in changes.items():
        text = re.sub(rf"^{old} = .*$", f"{old} = {new}", text, flags=re.M)
    return text


def metrics(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = sorted(folder.glob("*/metrics.jsonl"))
    return {path.parent.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_the_documented_file_makes_six_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("experiment.toml").write_text(documented())
    assert main(["train", "experiment.toml", "--dry-run"]) == 0
    plan = capsys.readouterr().out
    assert plan.count("to do") == 6 and "lr-0.0001_seed-0" in plan.replace("\n", "")
    assert not Path("runs").exists()
    wrong = documented().replace("tasks = 3", "taks = 3")
    Path("experiment.toml").write_text(wrong)
    assert main(["train", "experiment.toml"]) == 2
    said = capsys.readouterr().err.strip()
    assert said in (DOCS / "experiments.md").read_text()


def test_a_killed_experiment_continues_and_redoes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("e.toml").write_text(small())
    folder = Path("runs/e")
    second = folder / "lr-0.0005_seed-1"
    process = Warm(["train", "e.toml"])
    deadline = time.monotonic() + 120
    while not (second / "metrics.jsonl").exists() and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL and not (second / "report.md").exists()
    first = metrics(folder)
    assert list(read_results(folder)) == ["lr-0.0005_seed-0"]
    assert main(["train", "e.toml"]) == 0
    said = capsys.readouterr().out
    assert "run 1 of 2: lr-0.0005_seed-0: finished earlier" in said
    assert metrics(folder)["lr-0.0005_seed-0"] == first["lr-0.0005_seed-0"]  # not touched

    done = read_results(folder)
    values = [done[f"lr-0.0005_seed-{seed}"].after.mean for seed in (0, 1)]
    mean, half = sum(values) / 2, 12.7062 * abs(values[0] - values[1]) / 2  # t at one degree
    row = re.search(r"^0\.0005 .*", said, re.M)
    assert row is not None and f"{mean:.3f}" in row[0] and "2 of 2" in row[0]
    if half:
        assert f"{max(0, mean - half):.3f} to {min(1, mean + half):.3f}" in row[0]
    assert "2 of 2" in (folder / "table.md").read_text()

    before = metrics(folder)
    assert main(["train", "e.toml"]) == 0  # nothing is left
    assert metrics(folder) == before
    capsys.readouterr()
    Path("e.toml").write_text(small(tasks="4"))
    assert main(["train", "e.toml"]) == 2
    assert "was finished with other settings" in capsys.readouterr().err
    assert main(["train", "e.toml", "--seed", "3"]) == 2
    assert "several values of seed" in capsys.readouterr().err


def test_a_run_that_fails_is_named_and_the_others_are_trained(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    base = str(read_experiment(_written("x.toml", "steps = 1\n")).base.model.path)
    grid = f'[grid]\nmodel.path = ["missing-model", {json.dumps(base)}]\n'
    text = small().replace("seeds = [0, 1]", "seeds = [0]")
    Path("e.toml").write_text(text[: text.index("[grid]")] + grid)
    assert main(["train", "e.toml"]) == 1
    said = capsys.readouterr().out
    assert "there is no model folder at 'missing-model'" in said
    assert "0 of 1" in said and "1 of 1" in said and "one seed" in said
    table = Path("runs/e/table.md").read_text()
    assert "- failed: path-missing-model_seed-0" in table


def test_a_file_of_one_run_is_that_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = small()
    text = text[: text.index("[grid]")].replace("seeds = [0, 1]\n", "")
    Path("one.toml").write_text(text)
    assert main(["train", "one.toml", "--name", "other"]) == 0
    assert Path("runs/other/model/config.json").is_file()
    assert main(["train", "none.toml"]) == 2
    assert "there is no file none.toml" in capsys.readouterr().err
    Path("two.toml").write_text("seeds = [0, 1]\n")
    assert main(["eval", "two.toml"]) == 2
    assert "describes 2 runs" in capsys.readouterr().err


def test_an_interval_over_seeds_is_students():
    found = [Accuracy(100, 0, mean, 0.0, 1.0) for mean in (0.5, 0.6, 0.7)]
    mean, low, high = over_seeds(found)
    half = 4.302653 * 0.1 / math.sqrt(3)  # the quantile of a table, at two degrees of freedom
    assert (mean, low, high) == pytest.approx((0.6, 0.6 - half, 0.6 + half), abs=1e-6)
    assert all(math.isnan(end) for end in over_seeds(found[:1])[1:])
    alike = [Accuracy(10, 0, 1.0, 0.72, 1.0)] * 3
    assert over_seeds(alike) == (1.0, 0.72, 1.0)


def _written(name: str, text: str) -> Path:
    Path(name).write_text(text)
    return Path(name)

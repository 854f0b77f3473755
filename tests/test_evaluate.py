"""`recollect eval`: a table in which every mean has its interval, n and failures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recollect.cli import main
from tests.tiny import tiny_model

ROW = re.compile(r"(\d+)x the text +(\d\.\d{3}) +(\d\.\d{3}) to (\d\.\d{3}) +\S+ +(\d+) +(\d+)")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def evaluate(model: Path, *more: str) -> int:
    return main(["eval", "demo", "--model.path", str(model), "--val.tasks", "6", *more])


def rows(text: str) -> list[tuple[float, ...]]:
    return [tuple(map(float, row)) for row in ROW.findall(text)]


def test_a_row_for_every_length(capsys, model):
    assert evaluate(model, "--val.lengths", "1", "3", "--val.n", "2") == 0
    text = capsys.readouterr().out
    assert "95% interval" in text and "failed" in text
    found = rows(text)
    assert [row[0] for row in found] == [1, 3]
    for _times, mean, low, high, n, failed in found:
        assert 0 <= low <= mean <= high <= 1
        assert (n, failed) == (12, 0)


def test_a_failed_episode_is_shown_and_counts_as_wrong(capsys, model):
    """A chunk of four hundred facts does not fit the window, and every episode fails."""
    long = ("--tasks.distractors", "400", "--val.lengths", "1")
    assert evaluate(model, *long) == 0
    ((_times, mean, low, high, n, failed),) = rows(capsys.readouterr().out)
    assert (mean, low, n, failed) == (0, 0, 6, 6)
    assert high > 0.3  # six failures prove little


def test_it_leaves_nothing_behind(capsys, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert evaluate(model, "--val.lengths", "1") == 0
    assert not list(tmp_path.iterdir())

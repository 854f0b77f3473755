"""`recollect data ruler` and `babilong`, from the command to validated tasks."""

from __future__ import annotations

import pytest

from recollect.cli import main
from tests.support.made_up_tasks import write_babi, write_books


@pytest.fixture
def data(tmp_path):
    write_books(tmp_path / "books")
    write_babi(tmp_path / "stories")
    books = str(tmp_path / "books")
    assert main(["data", "ruler", "--input", books, "--output", str(tmp_path / "ruler")]) == 0
    babi = ["data", "babilong", "--input", str(tmp_path / "stories"), "--books", books]
    assert main([*babi, "--output", str(tmp_path / "babilong")]) == 0
    return tmp_path


def test_what_is_said(tmp_path, capsys):
    write_books(tmp_path / "books")
    write_babi(tmp_path / "stories")
    command = ["data", "babilong", "--input", str(tmp_path / "stories")]
    command += ["--books", str(tmp_path / "books"), "--output", str(tmp_path / "babilong")]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "read book.txt" in said and "qa1 train" in said and "sentences" in said


@pytest.mark.parametrize(
    "name", ["ruler:niah_single_2,vt,cwe@4k", "ruler:niah_multikey_3@4k", "babilong:qa1,qa8@1k"]
)
def test_validation(name, data, capsys):
    assert main(["data", "validate", name, "--data", str(data), "--n", "40"]) == 0
    said = capsys.readouterr().out
    assert "WRONG" not in said and "are in the evidence word for word" in said


def test_a_book_that_was_changed_is_noticed(data, capsys):
    with (data / "ruler/books/book.txt").open("r+b") as file:
        file.write(b"X")
    assert main(["data", "validate", "ruler:vt@2k", "--data", str(data), "--n", "5"]) == 1
    assert "not as written: books/book.txt" in capsys.readouterr().out


def test_what_is_missing_is_named(tmp_path, capsys):
    assert main(["data", "validate", "ruler:niah_single_2", "--data", str(tmp_path)]) != 0
    assert "recollect data ruler --input BOOKS" in capsys.readouterr().err
    assert main(["data", "validate", "babilong:qa1", "--data", str(tmp_path)]) != 0
    assert "tasks_1-20_v1-2.tar.gz" in capsys.readouterr().err

"""`--columns` on train and eval: your table, with what was read, mapped and dropped said first."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recollect.cli import main

MAP = "question=q,context=doc,answers=a"


@pytest.fixture
def table(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    n = 40
    rows = {
        "q": ["Which tree?"] * (n - 1) + [None],
        "doc": [f"Ann's tree {i} is elm." for i in range(n)],
        "a": ["elm"] * n,
        "extra\x1b[31m": list(range(n)),
    }
    pq.write_table(pa.table(rows), "mine.parquet")
    return "parquet:mine.parquet"


def test_a_run_maps_columns_and_says_so(table, capsys):
    assert main(["train", "demo", "--tasks", table, "--columns", MAP, "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "40 rows read" in said and "question from q, context from doc, answers from a" in said
    assert "1 rows dropped, without a question that is a text (first: row 39)" in said
    assert "columns not used: extra" in said and "\x1b[31m" not in said
    assert main(["train", "demo", "--tasks", table, f"--columns={MAP}", "--dry-run"]) == 0


def test_mistakes_are_one_line_with_the_fix(table, capsys):
    for more, said in (
        ([], "has no column for context, answers; it has q, doc, a"),
        (["--columns", "question=q,context=dox,answers=a"], "has no column 'dox' for context"),
        (["--columns", "question"], "'question' does not map a column"),
    ):
        for verb in (["train", "demo", "--dry-run"], ["eval", "demo"]):
            assert main([*verb, "--tasks", table, *more]) == 2
            assert said in capsys.readouterr().err
    assert main(["train", "demo", "--columns", MAP]) == 2
    assert "--columns maps no table" in capsys.readouterr().err
    assert main(["eval", "--tasks", "recall", "--model", "x", "--columns", MAP]) == 2
    assert "--columns maps no table" in capsys.readouterr().err


def test_a_table_without_held_out_rows_says_what_was_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = {"q": ["Which?", None, "Who?"], "doc": ["elm", "oak", "Ann"], "a": ["elm", "oak", None]}
    pq.write_table(pa.table(rows), "mine.parquet")
    words = ["eval", "--tasks", "parquet:mine.parquet", "--columns", MAP, "--agents", "fold"]
    assert main([*words, "--model", "http://127.0.0.1:9/v1"]) == 2
    said = capsys.readouterr().err
    assert "has no tasks in its test split; " in said and "3 rows read" in said
    assert "rows dropped" in said and "or a column `split` that says test" in said

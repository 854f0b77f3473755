"""The recursive agent over HTTP, beside the others: `recollect eval` and `recollect ask`."""

from __future__ import annotations

from collections import defaultdict

import pytest

from benchmarks.recursive_reader import Reader
from recollect.cli import main
from recollect.evaluation.folder import read_episodes
from tests.support.chat_server import chat_server
from tests.support.made_up_tasks import write_babi, write_books

AGENTS = ("recursive", "fold", "bank", "rag", "full_context")
TASKS = ("ruler:cwe,niah_single_1@4k", "chronicle:two-hop@4k", "babilong:qa1@2k")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """Every agent on every kind of task, asked by messages."""
    folder = tmp_path_factory.mktemp("recursive")
    write_books(folder / "data/babilong/books")
    write_babi(folder / "data/babilong/babi")
    with chat_server(Reader(2048, 256)) as server:
        status = main([
            "eval", "--tasks", *TASKS, "--agents", ",".join(AGENTS), "--model", server.url,
            "--n", "1", "--chunk-size", "8192", "--data", str(folder / "data"),
            "--out", str(folder / "out"), "--no-closed-book", "--workers", "1",
        ])  # fmt: skip
    assert status == 0
    return folder / "out"


def test_it_reads_beside_the_other_agents(evaluated):
    found = defaultdict(dict)
    for record in read_episodes(evaluated):
        assert record["failure"] is None, record
        found[record["task"]][record["agent"]] = record
    assert len(found) == 4 and all(set(own) == set(AGENTS) for own in found.values())
    for task in ("ruler:cwe@4k", "chronicle:two-hop@4k"):  # by a program alone: one short call
        own, fold = found[task]["recursive"], found[task]["fold"]
        answers = own["questions"][0]["answers"]
        assert all(answer in own["answers"][0] for answer in answers)
        assert [c["role"] for c in own["contexts"]] == ["answer"]
        assert len(fold["contexts"]) > 1
    needle = found["ruler:niah_single_1@4k"]["recursive"]  # found by search, read by a call
    assert [c["role"] for c in needle["contexts"]] == ["answer", "memory"]
    assert needle["questions"][0]["answers"][0] in needle["answers"][0]


def test_a_book_is_asked_about(tmp_path, capsys):
    write_books(tmp_path / "books")
    book = tmp_path / "books/book.txt"
    book.write_text(book.read_text() + "\n\nThe keeper of the lighthouse is Ottilie.\n")
    with chat_server(Reader(2048, 256)) as server:
        question = "Who is the keeper of the lighthouse?"
        assert (
            main(["ask", str(book), question, "--agent", "recursive", "--model", server.url]) == 0
        )
        assert any("in the variable text" in text for text in server.texts)
    assert "Ottilie" in capsys.readouterr().out

"""Your own agent, tasks and metric in an evaluation, beside ours, over HTTP."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from recollect.cli import main
from recollect.evaluation.folder import read_episodes
from tests.support.chat_server import chat_server
from tests.support.own import own_folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    with own_folder(tmp_path, monkeypatch) as folder:
        yield folder


def test_an_agent_of_yours_is_measured_beside_ours(here, capsys):
    with chat_server(lambda _text: "e1") as server:
        words = ["--agents", "fold,rag,mine:two_pass,mine.py:Reader", "--tasks", "mine:Chess"]
        words += ["--metrics", "token_f1,mine:close_enough", "--model", server.url]
        words += ["--set", "mine.py:Reader.max_note_tokens=7", "--out", "out", "--n", "2"]
        assert main(["eval", *words]) == 0
        shown = capsys.readouterr().out
        assert "mine:two_pass" in shown and "mine:Chess" in shown
        config = json.loads(Path("out/config.json").read_text())
        assert "max_note_tokens=7" in config["agents"]["mine.py:Reader"]
        assert list(config["code"]) == ["mine"] and Path("out/code/mine.py").is_file()
        results = json.loads(Path("out/results.json").read_text())
        assert "mine:close_enough" in json.dumps(results)
        # Scored again elsewhere, the metric comes from the folder.
        del sys.modules["mine"]
        Path("mine.py").unlink()
        assert main(["replay", "out", "--metrics", "mine:close_enough"]) == 0


def test_a_class_with_a_tool_is_measured_beside_ours_and_its_tool_is_called(here, capsys):
    call = '<tool_call>{"name": "whisper", "arguments": {"word": "E1"}}</tool_call>'
    with chat_server(lambda text: call if "Move" in text else "e1" * ("e1" in text)) as server:
        words = ["--agents", "fold,rag,mine:Seeker", "--tasks", "mine:Chess", "--n", "1"]
        words += ["--set", "mine:Seeker.tools=mine:shout,mine:whisper"]
        words += ["mine:Seeker.memory=mine:Notebook", "--model", server.url, "--out", "out"]
        assert main(["eval", *words]) == 0
    [episode] = [e for e in read_episodes(Path("out")) if e["agent"] == "mine:Seeker"]
    assert episode["failure"] is None and episode["answers"] == ["e1"]
    assert any(text == "<tool_response>\ne1\n</tool_response>" for text in server.texts)
    config = json.loads(Path("out/config.json").read_text())
    assert "Notebook" in config["agents"]["mine:Seeker"] and list(config["code"]) == ["mine"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--agents", "mine:nobody"], "has no nobody"),
        (["--agents", "nobody"], "there is no agent 'nobody'"),
        (["--tasks", "mine:Reader"], "is not a task family"),
        (["--tasks", "mine:Chess@8k"], "mine:Chess has no method of_length"),
        (["--metrics", "mine:nothing"], "has no nothing"),
        (["--metrics", "nothing"], "there is no metric 'nothing'"),
    ],
)
def test_bad_names_are_one_message(here, capsys, words, says):
    given = ["--model", "http://127.0.0.1:9/v1", "--out", "out"]
    given += [] if "--tasks" in words else ["--tasks", "recall@1k"]
    assert main(["eval", *given, *words]) == 2
    said = capsys.readouterr().err
    assert says in said and "fix: " in said

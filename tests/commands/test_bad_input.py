"""Bad input to a run: one line with the fix, or a warning, in the dry run of every engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recollect.cli import main
from recollect.config.presets import DEMO_MODEL

SILENT = """
async def silent(task, chats, memory):
    return [(await chats.open("answer").say("Say it.", max_tokens=4)).text for _ in task.questions]
"""
REFUSED = {
    "no such module": (["--agent", "no_such_module_at_all:Agent"], "there is no module"),
    "no such file": (["--agent", "nowhere.py:Agent"], "there is no file nowhere.py"),
    "no such name": (["--agent", "bad_own.py:sillent"], "choose from silent"),
    "not an agent": (["--agent", "bad_own.py:NUMBER"], "not an agent"),
    "raises on import": (["--agent", "bad_raises.py:agent"], "bad_raises.py:2"),
    "no column": (
        ["--tasks", "parquet:good.parquet", "--columns", "question=no,context=doc,answers=a"],
        "has no column 'no' for question",
    ),
    "another schema": (["--tasks", "parquet:other.parquet"], "has no column for"),
    "two schemas": (["--tasks", "parquet:both"], "has other columns than"),
    "not parquet": (["--tasks", "parquet:bad.parquet"], "is not a Parquet file"),
    "memory over the window": (["--agent.max-memory-tokens", "9999999"], "window"),
    "a name that leaves": (["--name", "../x"], "is not a folder inside"),
    "an empty name": (["--name", ""], "is not a folder inside"),
    "a learning role that never speaks": (
        ["--agent", "bad_own.py:silent", "--models.answer", "MODEL"],
        "nothing would be trained",
    ),
}


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("bad_own", "bad_raises"):  # another test's, from another folder
        monkeypatch.delitem(sys.modules, name, raising=False)
    Path("bad_own.py").write_text(f"NUMBER = 3\n{SILENT}")
    Path("bad_raises.py").write_text("import os\nraise ValueError('on purpose')\n")
    n = 20
    good = pa.table({"q": ["?"] * n, "doc": ["text"] * n, "a": ["x"] * n})
    other = pa.table({"left": [1], "right": [2]})
    Path("both").mkdir()
    for name, table in (("good", good), ("other", other), ("both/1", good), ("both/2", other)):
        pq.write_table(table, f"{name}.parquet")
    Path("bad.parquet").write_text("no parquet")
    return tmp_path


@pytest.mark.parametrize("engine", ["embedded", "verl"])
@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_line_with_the_fix(files, capsys, engine, case):
    more, said = REFUSED[case]
    # A cluster takes fixed models behind a server only; a dry run asks none.
    fixed = str(DEMO_MODEL) if engine == "embedded" else "http://127.0.0.1:9/v1"
    more = [fixed if word == "MODEL" else word for word in more]
    assert main(["train", "demo", "--engine", engine, "--dry-run", *more]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 2 and lines[1].startswith("  fix: ")
    assert said in " ".join(lines)


@pytest.mark.parametrize("engine", ["embedded", "verl"])
def test_one_episode_per_task_is_warned_of(files, capsys, engine):
    assert main(["train", "demo", "--engine", engine, "--dry-run", "--rollout.n", "1"]) == 0
    assert "rollout.n is 1: grpo has no siblings" in " ".join(capsys.readouterr().out.split())


def test_a_run_of_another_version_and_a_file_with_an_unknown_key(files, capsys):
    Path("old").mkdir()
    Path("old/config.json").write_text(json.dumps({"tasks": {}, "agent": {}}))
    assert main(["train", "old", "--dry-run"]) == 2
    assert "another version of recollect" in capsys.readouterr().err
    Path("e.toml").write_text("preset = 'demo'\nstpes = 3\n")
    assert main(["train", "e.toml", "--dry-run"]) == 2
    err = capsys.readouterr().err
    assert "e.toml, line 2: there is no setting stpes" in err and "choose from steps" in err
    # What other settings refuse may come of the name that was not understood.
    Path("e.toml").write_text("preset = 'demo'\nval.tasks = 0\nstpes = 3\n")
    assert main(["train", "e.toml", "--dry-run"]) == 2
    assert "e.toml, line 3: there is no setting stpes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["train", "demo", "--dry-run", "--tasks", "no/such one.jsonl"],
        [
            "eval",
            "--agents",
            "fold",
            "--model",
            "http://127.0.0.1:9/v1",
            "--tasks",
            "no/such.jsonl",
        ],
        ["data", "validate", "no/such one.jsonl"],
        ["data", "audit", "no/such.jsonl"],
    ],
    ids=lambda words: words[0],
)
def test_a_file_of_json_lines_that_is_not_there_is_said_to_be_missing(files, capsys, words):
    assert main(words) == 2
    assert f"there is no file {words[-1]}\n" in capsys.readouterr().err
    Path("no").mkdir()
    Path(words[-1]).write_text('{"text": "A cat.", "question": "What?", "answer": "cat"}\n' * 20)
    main(words)
    assert "there is no file" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [["train", "demo"], ["doctor"], ["eval"]], ids=" ".join)
def test_no_word_of_a_command_acts_on_the_terminal(files, capsys, words):
    for bad in ("--nope\x1b[31m\u202e", "--nope\x1b[31m=3"):
        assert main([*words, bad]) == 2
        shown = capsys.readouterr().err
        assert "there is no setting '--nope\\x1b[31m" in shown and "\x1b" not in shown


def test_a_long_error_of_ones_own_code_is_shown_in_part(files, capsys):
    text = "async def agent(task, chats, memory):\n    raise ValueError('wrong ' + 'y' * 9000)\n"
    Path("bad_long.py").write_text(text)
    assert main(["train", "demo", "--agent", "bad_long:agent"]) == 2
    shown = capsys.readouterr().err
    assert "bad_long.py:2: ValueError: wrong y" in shown and len(shown) < 1000


@pytest.mark.parametrize("verb", ["train", "eval"])
def test_an_empty_name_is_no_preset(files, capsys, verb):
    assert main([verb, ""]) == 2
    assert "there is no preset ''" in capsys.readouterr().err

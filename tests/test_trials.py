"""Trials of a user's own code: where it is, while it takes long."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from recollect import trials
from recollect.cli import main
from recollect.errors import show_place
from recollect.trials import noticed
from tests.support.chat_server import chat_server
from tests.support.own import own_folder


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(trials, "PATIENCE", 0.2)


def said_of(work) -> list[str]:
    """Run something that takes longer than a trial should, and return what was said of it."""
    said: list[str] = []

    async def run() -> None:
        with noticed(said.append):
            await work()

    asyncio.run(run())
    return said


async def waits() -> None:
    await asyncio.sleep(0.6)


async def awaits_another() -> None:
    await asyncio.create_task(waits())


async def waits_in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(waits())


async def blocks() -> None:
    time.sleep(0.6)


@pytest.mark.parametrize(
    ("work", "place"),
    [(waits, waits), (awaits_another, waits), (waits_in_a_group, waits), (blocks, blocks)],
)
def test_where_slow_code_is_is_said_once(impatient, work, place):
    [said] = said_of(work)
    line = show_place(__file__, place.__code__.co_firstlineno + 1)
    assert f"and is at {line};" in said
    assert "has taken 0.2 s" in said and "Ctrl-C" in said


def test_what_is_quick_says_nothing(monkeypatch):
    monkeypatch.setattr(trials, "PATIENCE", 0.3)
    said: list[str] = []

    async def run() -> None:
        with noticed(said.append):
            await asyncio.sleep(0)
        await asyncio.sleep(0.5)

    asyncio.run(run())
    assert not said


def test_an_evaluation_says_where_its_trial_is(impatient, tmp_path, monkeypatch, capsys):
    with own_folder(tmp_path, monkeypatch), chat_server(lambda _text: "e1") as server:
        Path("own.py").write_text(
            "import asyncio\n\n\nasync def slow(task, chats, memory):\n"
            "    await asyncio.sleep(0.6)\n    return ['e1']\n"
        )
        words = ["eval", "--agents", "own:slow", "--tasks", "recall@1k", "--n", "1"]
        words += ["--model", server.url, "--out", "out", "--no-closed-book"]
        assert main(words) == 0
    assert "has taken 0.2 s, and is at own.py:5; Ctrl-C ends it" in capsys.readouterr().out


def test_a_run_says_where_its_trial_is(impatient, tmp_path, monkeypatch, capsys):
    with own_folder(tmp_path, monkeypatch):
        Path("own.py").write_text(
            "import time\n\n\nasync def slow(task, chats, memory):\n"
            "    time.sleep(0.3)\n    raise KeyError('later')\n"
        )
        words = ["train", "demo", "--agent", "own:slow", "--steps", "1"]
        assert main([*words, "--folder", "runs"]) == 2
    said = capsys.readouterr()
    assert "and is at own.py:5; Ctrl-C ends it" in said.out
    assert "own.py:6: KeyError" in said.err

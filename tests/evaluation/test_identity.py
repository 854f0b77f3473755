"""An evaluation knows what it measured: another agent or other tasks are never taken for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import recollect
from recollect.cli import main
from recollect.errors import UserError
from recollect.evaluation import texts
from recollect.evaluation.entry import _around, commit_of
from recollect.types import Question, Task
from tests.support.chat_server import chat_server
from tests.support.own import own_folder


@dataclass(frozen=True)
class Moves:
    moves: int = 3
    name = "moves"
    metric = "sub_exact_match"

    def size(self, split):
        return None

    def longer(self, times):
        return Moves(self.moves * times)

    def task(self, index, seed=0, split="train"):
        chunks = [f"Move {i}." for i in range(self.moves)]
        question = Question("How many moves?", (str(self.moves),))
        return Task(f"moves-{split}-{index}", chunks, (question,), "moves")


class Plain:
    def __init__(self, right):
        self.said = "3" if right else "no"

    async def run(self, task, chats, memory):
        return [self.said]


async def says(task, chats, memory, word):
    return [word]


def made(word):
    async def inner(task, chats, memory):
        return [word]

    return inner


class Called:
    def __init__(self, right):
        self.right = np.array([right])

    async def __call__(self, task, chats, memory):
        return ["3" if self.right[0] else "no"]


class Holder:
    def __init__(self, right):
        self._inner = Called(right)

    async def run(self, task, chats, memory):
        return await self._inner(task, chats, memory)


def by_default(word):
    async def inner(task, chats, memory, word=word):
        return [word]

    return inner


def nested(word):
    def says():
        return word

    async def inner(task, chats, memory):
        return [says()]

    return inner


@pytest.fixture
def measure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with chat_server(lambda _text: "x") as server:

        def run(agents, tasks=Moves(), **more):
            given = {"model": server.url, "n": 2, "quiet": True, "closed_book": False}
            found = recollect.evaluate(tasks=tasks, agents=agents, **given, **more)
            [score] = found.scores.values()
            return score.mean, found.folder

        yield run


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (Plain(False), Plain(True)),
        (partial(says, word="no"), partial(says, word="3")),
        (made("no"), made("3")),
        (Called(False), Called(True)),
        (Holder(False), Holder(True)),
        (by_default("no"), by_default("3")),
        (nested("no"), nested("3")),
    ],
    ids=["plain", "partial", "closure", "called", "holder", "default", "nested"],
)
def test_another_object_is_another_evaluation(measure, wrong, right):
    before, after = measure({"own": wrong}), measure({"own": right})
    assert (before[0], after[0]) == (0, 1) and before[1] != after[1]
    assert measure({"own": right}) == after  # the same one is found again
    with pytest.raises(UserError, match="holds episodes made with other settings: agent own was"):
        measure({"own": wrong}, out=after[1])


def test_other_tasks_of_one_name_are_refused(measure):
    right = {"own": Plain(True)}
    assert measure(right, Moves(3), out="here")[0] == 1
    assert measure(right, Moves(9))[0] == 0
    with pytest.raises(UserError, match=r"the tasks moves were .*: 3.*, now .*: 9"):
        measure(right, Moves(9), out="here")


def test_two_of_one_name_are_refused(measure):
    with pytest.raises(UserError, match="2 agents are called Plain"):
        measure([Plain(True), Plain(False)])
    with pytest.raises(UserError, match="2 task families are called moves"):
        measure([Plain(True)], [Moves(3), Moves(9)])


def test_a_family_that_was_edited_is_refused_and_its_source_kept(tmp_path, monkeypatch, capsys):
    with own_folder(tmp_path, monkeypatch), chat_server(lambda _text: "e1") as server:
        words = ["eval", "--agents", "mine:two_pass", "--tasks", "mine:Chess", "--n", "1"]
        words += ["--model", server.url, "--out", "out", "--no-closed-book"]
        assert main(words) == 0
        own, kept = Path("mine.py"), Path("out/code/mine.py")
        before = kept.read_text()
        own.write_text(re.sub("moves: int = 3", "moves: int = 9", before))
        del sys.modules["mine"]
        capsys.readouterr()
        assert main(words) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "the tasks mine:Chess were" in said and kept.read_text() == before


READS = """\
from pathlib import Path
from recollect import Question, Task

def fam(split):
    word = Path("N.txt").read_text()
    asked = (Question("Which word?", (word,)),)
    return [Task(f"{split}-{i}", [f"Text {i} says {word}."], asked) for i in range(20)]
"""


@pytest.mark.parametrize("n", ["4", "8"])
def test_a_function_whose_data_have_changed_is_refused_before_a_model_is_asked(
    tmp_path, monkeypatch, capsys, n
):
    """The source is the same, and tasks that are new have no hash to compare."""
    with own_folder(tmp_path, monkeypatch, own=READS), chat_server(lambda _text: "cat") as server:
        words = ["eval", "--agents", "full_context", "--tasks", "own:fam", "--model", server.url]
        words += ["--out", "out", "--no-closed-book", "--n"]
        Path("N.txt").write_text("cat")
        assert main([*words, "4"]) == 0
        config = Path("out/config.json").read_text()
        asked = len(server.texts)
        Path("N.txt").write_text("dog")
        capsys.readouterr()
        assert main([*words, n]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "own:fam, task 0 of seed 0: the task's text is not what stored episodes" in said
        assert "fix: evaluate into a new folder with --out" in said
        asked_now = [text for text in server.texts[asked:] if text != "Say OK."]
        assert not asked_now and Path("out/config.json").read_text() == config
        Path("N.txt").write_text("cat")
        assert main([*words, n]) == 0


def test_few_tasks_are_made_again_and_fewer_of_long_ones():
    made: list[int] = []

    class Seen(Moves):
        def task(self, index, seed=0, split="train"):
            made.append(index)
            return super().task(index, seed, split)

    class Two(Seen):
        def size(self, split):
            return 2

    def check(n: int, chars: int, family: Moves = Seen()) -> list[int]:
        made.clear()
        known = {(0, i): (texts.measure(Moves().task(i, 0, "test")).hash, chars) for i in range(n)}
        texts.check_unchanged({"moves": known}, {"moves": family}, "test")
        return made

    assert check(5, 100) == [0, 1, 2, 3, 4] and check(1, 10**9) == [0] and check(0, 1) == []
    assert len(set(check(1000, 100))) == 32 and (made[0], made[-1]) == (0, 999)
    assert check(1000, 10**9) == [0, 999]
    assert check(2, 100, Two()) == [0, 1]
    with pytest.raises(UserError, match="moves, task 2 of seed 0: the task's text is not"):
        check(3, 100, Two())


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_is_named_without_writing_into_the_checkout(tmp_path):
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True)

    assert commit_of(tmp_path) == ""
    git("init", "--quiet")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "--quiet", "--message", "a")
    index = tmp_path / ".git" / "index"
    os.utime(tmp_path / "a", (1, 1))  # which git would write down
    before = index.stat().st_ino, index.read_bytes()
    clean = commit_of(tmp_path)
    assert re.fullmatch(r"[0-9a-f]{12}", clean)
    (tmp_path / "a").write_text("2")
    assert commit_of(tmp_path) == f"{clean}-dirty"
    assert (index.stat().st_ino, index.read_bytes()) == before


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        (" mine aaaaaaaaaaaa", " mine bbbbbbbbbbbb", "the module mine has changed"),
        ("", " with its model 0123456789abcdef", "with its model 0123456789abcdef..."),
        (", answer http://old:1/v1", ", answer http://new:1/v1", "answer http://new:1/v1..."),
        (", answer /my models/a", ", answer /models/a", "answer /models/a..."),
    ],
)
def test_what_has_changed_is_shown_and_is_a_module_only_where_one_is_named(before, now, says):
    """An agent that is a run is described with its models, where others have their code."""
    run = '{"class": "fold"} with its model fedcba9876543210' if "answer" in now else '{"x": 1}'
    shown = _around(run + before, run + now)
    assert shown.endswith(says) and shown.startswith("made of other code") == ("mine" in now)

"""Trials of a user's own code: where it is, while it takes long."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from recollect import trials
from recollect.agents.function import FunctionAgent
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.cli import main
from recollect.config.modules import load
from recollect.config.presets import preset
from recollect.errors import UserError, show_place
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.answers import AnswerReward
from recollect.rewards.base import NoReward
from recollect.rewards.function import FunctionReward
from recollect.rollout import Rollout
from recollect.tasks.function import as_family
from recollect.train.trial import rehearse, try_out
from recollect.train.wiring import make_reward
from recollect.trials import noticed
from tests.support.bytes_tokenizer import ByteTokenizer
from tests.support.chat_server import chat_server
from tests.support.own import own_folder

TOKENIZER = ByteTokenizer()


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


async def waits_in_a_group(size: int = 3) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(size):
            group.create_task(waits())


async def waits_in_a_group_of_one() -> None:
    await waits_in_a_group(1)


async def blocks() -> None:
    time.sleep(0.6)


@pytest.mark.parametrize(
    ("work", "place"),
    [
        (waits, waits),
        (awaits_another, waits),
        (waits_in_a_group, waits),
        (waits_in_a_group_of_one, waits),
        (blocks, blocks),
    ],
)
def test_where_slow_code_is_is_said_once(impatient, work, place):
    [said] = said_of(work)
    line = show_place(__file__, place.__code__.co_firstlineno + 1)
    assert f"and is at {line};" in said
    assert "has taken 0.2 s" in said and "Ctrl-C" in said


@pytest.mark.parametrize("reverse", [False, True])
def test_a_task_that_waits_for_another_is_not_the_place(impatient, monkeypatch, reverse):
    every = asyncio.all_tasks  # a set, whose order is that of addresses
    monkeypatch.setattr(
        asyncio, "all_tasks", lambda loop: sorted(every(loop), key=asyncio.Task.get_name,
                                                  reverse=reverse)
    )  # fmt: skip
    test_where_slow_code_is_is_said_once(None, awaits_another, waits)


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


def test_a_trial_takes_several_tasks(tmp_path, monkeypatch, capsys):
    """An agent may have nothing to say to one task, or fail at it: that is no mistake yet."""
    with own_folder(tmp_path, monkeypatch):
        Path("own.py").write_text(
            "async def answer(task, chats):\n    chat = chats.open()\n"
            "    return [(await chat.say('x', max_tokens=2)).text]\n\n\n"
            "async def silent(task, chats, memory):\n"
            "    first = '-0-0-' in task.id\n"
            "    return ['x'] * len(task.questions) if first else await answer(task, chats)\n\n\n"
            "async def raises(task, chats, memory):\n"
            "    if '-0-0-' in task.id:\n        raise KeyError('the first')\n"
            "    return await answer(task, chats)\n\n\n"
            "async def stops(task, chats, memory):\n"
            "    return [next(word for word in task.chunks if word == 'nowhere')]\n"
        )
        for name in ("silent", "raises", "stops"):
            config = replace(preset("demo"), agent=FunctionAgent(load(f"own:{name}")))
            model = Model(ScriptedPolicy(TOKENIZER, lambda _prompt: "x"), Renderer(TOKENIZER))
            rollout = Rollout(config.agent, dict.fromkeys(("memory", "answer"), model), NoReward())
            work = try_out(config, rollout, print)
            if name == "stops":
                with pytest.raises(UserError, match=r"own.py:18: RuntimeError: .*StopIteration"):
                    asyncio.run(work)
            else:
                asyncio.run(work)


CHANGING = """
import itertools, random, time
N = itertools.count()

def dice(prediction, answers):
    return random.random()

def steady(prediction, answers):
    return 0.5

def turns(episode, memory):
    return next(N)

def clock(episode, memory):
    return time.time() % 1

def fixed(episode, memory):
    return len(memory.text)

async def judge(episode, memory):
    return random.random()
"""


def tried(**changes) -> list[str]:
    """Try a run of the demo; return what is said."""
    said: list[str] = []
    config = replace(preset("demo"), **changes)
    model = Model(ScriptedPolicy(TOKENIZER, lambda _prompt: "x"), Renderer(TOKENIZER))
    models = dict.fromkeys(("memory", "answer"), model)
    rollout = Rollout(config.agent, models, make_reward(config, models))
    asyncio.run(try_out(config, rollout, said.append))
    assert bool(rehearse(config)) == bool(said)
    return said


def test_a_metric_that_changes_its_mind_is_not_trained_with(tmp_path, monkeypatch):
    with own_folder(tmp_path, monkeypatch, own=CHANGING):
        assert tried(reward=AnswerReward(load("own:steady"))) == []
        for work in (tried, lambda **changes: rehearse(replace(preset("demo"), **changes))):
            with pytest.raises(
                UserError, match=r"own.py:5: the metric own:dice gives the same answer"
            ):
                work(reward=AnswerReward(load("own:dice")))


def test_a_reward_that_changes_its_mind_is_told(tmp_path, monkeypatch):
    """Unless it is async: then a judge may say it, and judges change theirs."""
    with own_folder(tmp_path, monkeypatch, own=CHANGING):
        for name in ("fixed", "judge"):
            assert tried(reward=FunctionReward(load(f"own:{name}"))) == []
        for name in ("turns", "clock"):
            [said] = tried(reward=FunctionReward(load(f"own:{name}")))
            assert f"the reward {name} gave one episode 0" in said and "own.py:1" in said


UNANSWERED = """
from recollect import Question, Task

def tasks(split):
    return [Task(f"{split} {i}", [f"{split} {i}"], (Question("Which?", ()),)) for i in range(20)]

def fixed(episode, memory):
    return len(memory.text)
"""


def test_questions_that_nobody_can_answer_are_named(tmp_path, monkeypatch):
    with own_folder(tmp_path, monkeypatch, own=UNANSWERED):
        family = as_family(load("own:tasks"))
        with pytest.raises(
            UserError, match=r"'Which\?' in task 'train \d+' has no accepted answer"
        ):
            tried(tasks=family, reward=AnswerReward())
        [said] = tried(tasks=family, reward=FunctionReward(load("own:fixed")))
        assert "the held-out accuracy counts it as wrong" in said


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

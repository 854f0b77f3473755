"""Odd agents are found by name, run, are written down, and are read back; mistakes name a line."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.agents.base import Agent
from recollect.agents.function import as_agent
from recollect.config.modules import load
from recollect.config.overlay import _value, to_table
from recollect.config.parts import AGENTS, agent_named
from recollect.config.presets import PRESETS
from recollect.config.sources import sources
from recollect.config.stored import own_sources
from recollect.errors import UserError
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.base import Score
from recollect.rollout import Rollout
from recollect.types import Question, Task
from tests.support.own import own_folder

ODD = """
from __future__ import annotations

import asyncio
import enum
import functools
from dataclasses import dataclass, field
from typing import Literal, Optional

import sibling


async def answer(chats, question, n=2):
    return (await chats.open().say(question.text, max_tokens=n)).text


async def no_chunk(task, chats, memory):
    return [await answer(chats, q) for q in task.questions]


async def gathered(task, chats, memory):
    said = [chats.open("memory").say(chunk, max_tokens=3) for chunk in task.chunks]
    memory.text = " ".join(note.text for note in await asyncio.gather(*said))
    return tuple(await asyncio.gather(*(answer(chats, q) for q in task.questions)))


async def forked(task, chats, memory):
    copy = memory.fork()
    copy.text = "only there"
    assert memory.text == ""
    return [await answer(chats, q) for q in task.questions]


async def with_setting(task, chats, memory, n, seen=[]):
    seen.append(task.id)
    return [await answer(chats, q, n) for q in task.questions]


partial = functools.partial(with_setting, n=sibling.TWO)


class Calls:
    def __init__(self, n=2):
        self.n = n

    async def __call__(self, task, chats, memory):
        return [await answer(chats, q, self.n) for q in task.questions]


calls = Calls(3)


class Plain:
    def __init__(self, n=2):
        self.n = n

    async def run(self, task, chats, memory):
        from late import LATE

        return [await answer(chats, q, self.n) + LATE for q in task.questions]


plain = Plain(3)


def made(n):
    async def agent(task, chats, memory):
        return [await answer(chats, q, n) for q in task.questions]

    return agent


closure = made(2)


class Home:
    @classmethod
    async def of_class(cls, task, chats, memory):
        return [await answer(chats, q) for q in task.questions]

    @staticmethod
    async def static(task, chats, memory):
        return [await answer(chats, q) for q in task.questions]


class Style(enum.Enum):
    SHORT = "short"
    LONG = "long"


@dataclass(frozen=True)
class Inner:
    mode: Literal["x", "y"] = "y"
    names: tuple[str, ...] = ("p", "q")


@dataclass(frozen=True)
class Nested:
    inner: Inner = Inner()
    perhaps: Optional[int] = None
    style: Style = Style.LONG
    table: dict[str, int] = field(default_factory=lambda: {"a": 1})

    async def run(self, task, chats, memory):
        assert self.style is Style.LONG and self.inner.names == ("p", "q")
        return [await answer(chats, q) for q in task.questions]


async def äthiopisch(task, chats, memory):
    return [await answer(chats, q) for q in task.questions]


async def ends_python(task, chats, memory):
    raise SystemExit(3)


async def interrupts(task, chats, memory):
    raise KeyboardInterrupt


async def cancels(task, chats, memory):
    own = asyncio.ensure_future(asyncio.sleep(9))
    own.cancel()
    await own


async def yields(task, chats, memory):
    yield "a"


async def unawaited(task, chats, memory):
    return [chats.open().say(q.text, max_tokens=2) for q in task.questions]


async def nothing_said(task, chats, memory):
    await chats.open().say(max_tokens=2)


async def no_tokens(task, chats, memory):
    await chats.open().say("a", max_tokens=0)


async def too_long(task, chats, memory):
    await chats.open().say("a" * 5000, max_tokens=2)
"""
FILES = {"odd": ODD, "sibling": "TWO = 2\n", "late": "LATE = '!'\n"}
QUESTIONS = (Question("Who?", ("x",)), Question("When?", ("y",)))
TASK = Task("t", ("one", "two"), QUESTIONS)


@pytest.fixture
def here(tmp_path, monkeypatch):
    with own_folder(tmp_path, monkeypatch, **FILES) as folder:
        yield folder


async def reward(episode, memory):
    return Score(0.0)


def run(agent):
    model = ScriptedPolicy.model(lambda _prompt: "x")
    models = dict.fromkeys(("memory", "answer"), replace(model, window=1000))
    [[episode]] = asyncio.run(Rollout(agent, models, reward).groups([TASK], 1, (0,)))
    return episode


GOOD = [
    *("no_chunk", "gathered", "forked", "partial", "calls", "Calls", "Plain", "plain", "closure"),
    *("Home.of_class", "Home.static", "Nested", "äthiopisch"),
]


@pytest.mark.parametrize("name", GOOD)
def test_an_odd_agent_runs_and_is_read_back(here, name):
    agent = agent_named(f"odd.py:{name}", None)
    episode = run(agent)
    assert episode.ok, episode.failure
    assert [answer.strip("!") for answer in episode.answers] == ["x", "x"]
    table = to_table(agent, Agent)
    again = _value(Agent, None, table, lambda _dotted: "here", "agent", load)
    assert to_table(again, Agent) == table and run(again).answers == episode.answers
    found = {source.relative for source in own_sources(agent)}
    assert found == {"odd.py", "sibling.py", "late.py"}  # what is imported later travels, too


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ends_python", "ended Python (SystemExit: 3)"),
        ("interrupts", "ended Python (KeyboardInterrupt)"),
        ("cancels", "awaited something that was cancelled"),
        ("unawaited", "among its answers, not a list of answers as texts: await it"),
        ("nothing_said", "say needs a text"),
        ("no_tokens", "max_tokens is 0: a reply has at least 1"),
        ("too_long", "prompt tokens fill the window of 1000"),
    ],
)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_mistake_fails_the_episode_with_the_agents_line(here, name, says):
    failure = run(agent_named(f"odd:{name}", None)).failure
    assert says in failure.message and failure.fault == "agent"
    assert failure.place.startswith("odd.py:")


def test_what_is_no_agent_or_no_name_is_one_message(here):
    Path("my.agent.py").write_text("")
    Path("broken.py").write_text("def f(:\n")
    for name, says in {
        "odd:yields": "it yields, and must return a list",
        "odd": "odd names a file, and no agent in it",
        "odd.py": "odd.py names a file, and no agent in it",
        "my.agent.py:f": "cannot be imported under the name 'my.agent'",
        "broken:f": "broken.py:1: SyntaxError: invalid syntax (while importing broken)",
    }.items():
        with pytest.raises(UserError) as caught:
            agent_named(name, None)
        assert says in caught.value.what and "\n" not in caught.value.what


def test_an_agent_of_a_package_by_path_imports_relatively(here):
    Path("pack/sub").mkdir(parents=True)
    for name, text in {
        "pack/__init__.py": "",
        "pack/words.py": "N = 2\n",
        "pack/sub/__init__.py": "",
        "pack/sub/agents.py": "from ..words import N\n\n"
        "async def f(task, chats, memory):\n    return ['x'] * N\n",
    }.items():
        Path(name).write_text(text)
    agent = agent_named("pack/sub/agents.py:f", None)
    assert run(agent).answers == ["x", "x"]
    assert to_table(agent)["class"] == "pack.sub.agents:f"
    assert "pack/words.py" in {s.relative for s in sources([agent.function])}


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_can_take_the_place_of_every_presets(name: str):
    for config in PRESETS.values():
        assert type(agent_named(name, config.agent)) is type(as_agent(load(AGENTS[name])))

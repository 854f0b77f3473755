"""What episodes of a user's own agent share and change is said: many of them run at once."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import ClassVar

import numpy as np
import pytest

from recollect.agents.base import checked_answers
from recollect.agents.fold import FoldAgent
from recollect.agents.function import as_agent
from recollect.agents.shared import MANY, changes, held
from recollect.errors import OwnMistake
from tests.support import bystander

NOTES: list[str] = []
VECTOR = np.zeros(3)
CLIENT = None
COUNT = 0


class Shelf:
    def __init__(self):
        self.books = {"a": [1]}


SHELF = Shelf()


async def to_a_global(task, chats, memory):
    NOTES.append(task)


async def to_a_number(task, chats, memory):
    global COUNT
    COUNT += 1


async def to_an_object(task, chats, memory):
    SHELF.books["a"].append(2)


async def to_a_client(task, chats, memory):
    global CLIENT
    CLIENT = CLIENT or Shelf()


async def locally(task, chats, memory):
    notes = [*NOTES, COUNT, SHELF.books, float("nan")]
    VECTOR[0] += 1
    return notes


def closing():
    seen = set()

    async def agent(task, chats, memory):
        seen.add(task)

    return agent


@dataclass
class Counting:
    n: int = 3

    async def run(self, task, chats, memory):
        self.n += 1


@dataclass(frozen=True)
class Keeping:
    notes: list[str] = field(default_factory=list)
    odd: float = float("nan")

    async def run(self, task, chats, memory):
        self.notes.append(task)


class Opening:
    def __init__(self):
        self.parts = {"client": None, "shelf": None}

    async def run(self, task, chats, memory):
        self.parts["client"] = np.zeros(3)
        self.parts["shelf"] = Shelf()


class Writing:
    async def run(self, task, chats, memory):
        self.memory_text = task


class Computing:
    @cached_property
    def table(self):
        return [1]

    async def run(self, task, chats, memory):
        return self.table


class Called:
    def __init__(self):
        self.calls = 0

    async def __call__(self, task, chats, memory):
        self.calls += 1


async def to_a_default(task, chats, memory, seen=[], *, more={}):  # noqa: B006
    seen.append(task)


async def to_a_keyword(task, chats, memory, *, more={}):  # noqa: B006
    more[task] = 1


async def to_itself(task, chats, memory):
    to_itself.__dict__.setdefault("seen", []).append(task)


class Classwide:
    seen: ClassVar[list[str]] = []

    async def run(self, task, chats, memory):
        self.seen.append(task)


class Inherited(Classwide):
    pass


def piled(task):
    global COUNT
    COUNT += 1


class Helper:
    def __call__(self, task):
        piled(task)


HELPER = Helper()


async def through_a_helper(task, chats, memory):
    HELPER(task)


class Helped:
    def __init__(self):
        self.helper = Helper()

    async def run(self, task, chats, memory):
        self.helper(task)


async def to_another_module(task, chats, memory):
    bystander.SEEN.append(task)


async def through_another_module(task, chats, memory):
    bystander.see(task)


async def with_a_list(notes, task, chats, memory):
    notes.append(task)


async def looking_only(task, chats, memory, seen=(), **rest):
    return [COUNT, bystander.SEEN, Classwide.seen, seen, vars(to_itself)]


def scored(episode, memory):
    NOTES.append("what a reward keeps in a global of this module is not the agent's")


def said(agent) -> str:
    before = held(agent)
    asyncio.run(agent.run("a task", None, None))
    return changes(agent, before)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (to_a_global, "to_a_global changes NOTES as"),
        (to_a_number, "to_a_number changes COUNT as"),
        (to_an_object, "to_an_object changes SHELF as"),
        (partial(to_a_global), "to_a_global changes NOTES as"),
        (closing(), "agent changes seen as"),
        (Counting, "Counting changes self.n as"),
        (Keeping, "Keeping changes self.notes as"),
        (Writing, "Writing changes self.memory_text as"),
        (Called(), "Called changes self.calls as"),
        (to_a_default, "to_a_default changes the default of seen as"),
        (to_a_keyword, "to_a_keyword changes the default of more as"),
        (to_itself, "to_itself changes to_itself.seen as"),
        (Classwide, "Classwide changes Classwide.seen as"),
        (Inherited, "Inherited changes Classwide.seen as"),
        (through_a_helper, "through_a_helper changes COUNT as"),
        (Helped, "Helped changes COUNT as"),
        (to_another_module, "to_another_module changes bystander.SEEN as"),
        (through_another_module, "changes tests.support.bystander.SEEN as"),
        (partial(with_a_list, []), "with_a_list changes the argument 1 as"),
    ],
)
def test_what_all_episodes_share_and_one_changes_is_named(given, names):
    found = said(as_agent(given))
    assert "test_shared.py:" in found and names in found


@pytest.mark.parametrize("given", [locally, Computing, Opening, to_a_client, looking_only])
def test_what_is_local_or_made_once_is_no_state(given):
    assert said(as_agent(given)) == ""


def test_what_others_change_meanwhile_is_not_the_agents():
    before = held(as_agent(to_a_number))
    scored(None, None)
    assert changes(as_agent(to_a_number), before) == ""


def test_to_look_takes_little_time():
    names = [f"LARGE_{i}" for i in range(20)]
    space = {name: [{"a": i} for i in range(4_000)] for name in names} | {"NOTES": []}
    text = f"async def agent(task, chats, memory):\n    {', '.join(names)}\n    NOTES.append(1)"
    exec(compile(text, __file__, "exec"), space)
    agent = as_agent(space["agent"])
    started = time.perf_counter()
    assert said(agent).startswith("tests/agents/test_shared.py:1: agent changes NOTES as")
    assert time.perf_counter() - started < 0.5  # of which it takes a tenth


def test_a_cache_is_asked_about():
    found = said(as_agent(to_a_global))
    assert "if that is a cache, all is well; otherwise let what one of them needs be local" in found


def test_a_lot_is_known_by_its_numbers_only():
    """An index of millions of items is copied neither before a trial nor after it."""

    class Indexed:
        def __init__(self):
            self.rows = [list(range(20)) for _ in range(9_000)]
            self.notes = []

        async def run(self, task, chats, memory):
            self.notes.append(task)

    agent = as_agent(Indexed)
    copied = held(agent)["self.rows"]
    assert sum(1 for _ in chain.from_iterable(r for r in copied if isinstance(r, list))) <= MANY
    assert "Indexed changes self.notes as" in said(agent)


def test_what_a_thread_changes_meanwhile_is_passed_over():
    class Busy(OrderedDict):
        def items(self):
            raise RuntimeError("dictionary keys changed during iteration")

    class Threaded:
        def __init__(self):
            self.live = Busy(a=1)

        async def run(self, task, chats, memory):
            self.live["b"] = 2

    assert said(as_agent(Threaded)) == ""


@dataclass(frozen=True)
class Named:
    """Has a setting of a name that ours use for what is called."""

    function: str = "search"

    async def run(self, task, chats, memory):
        return 3


def test_a_setting_called_function_is_no_function():
    with pytest.raises(OwnMistake, match="the agent Named returned 3") as raised:
        checked_answers(Named(), 3, 1)
    assert "test_shared.py:" in raised.value.place


def test_agents_of_ours_hold_nothing():
    assert held(FoldAgent()) == {} and changes(FoldAgent(), {}) == ""


class Touchy:
    """A client that answers to any name, and not before it is opened."""

    def __getattr__(self, name: str):
        raise RuntimeError(f"{name}: open the client first")


TOUCHY = Touchy()


async def asks_touchy(task, chats, memory):
    return [str(TOUCHY is None) for _ in task.questions]


def test_an_object_is_not_asked_for_names_that_it_may_not_have():
    assert "TOUCHY" in held(as_agent(asks_touchy))

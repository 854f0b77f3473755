"""What settings hold is written down and read back as it was; the rest is not lost in silence."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.commands.api import with_overrides
from recollect.commands.arguments import read_config
from recollect.config.modules import load, name_of
from recollect.config.overlay import LOST, to_table
from recollect.config.presets import preset
from recollect.config.stored import own_sources, read_settings, write_settings
from recollect.errors import UserError
from recollect.evaluation.options import choose_agents
from tests.support.own import own_folder

OWN = """
import datetime, decimal, enum, pathlib, re
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple


class Shape(enum.Enum):
    A = (1, 2)
    B = (3, 4)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Fields:
    words: frozenset[str] = frozenset({"one", "two", "three", "four"})
    price: decimal.Decimal = decimal.Decimal("1.5")
    pause: datetime.timedelta = datetime.timedelta(0)
    since: datetime.date = datetime.date(2020, 1, 1)
    mark: bytes = b"x"
    letters: re.Pattern = re.compile("a+")
    shape: Shape = Shape.A
    colour: Colour = Colour.RED
    name: str = "x"
    most: float = 1.0

    async def run(self, task, chats, memory):
        return ["yes"]


@dataclass(frozen=True)
class Odd:
    steps: range = range(3)
    thing: object = field(default_factory=object)

    async def run(self, task, chats, memory):
        return ["yes"]


class Tuple(NamedTuple):
    k: int = 3

    async def run(self, task, chats, memory):
        return ["yes"]


class Plain:
    def __init__(self, k: int = 3):
        self.k = k

    async def run(self, task, chats, memory):
        return ["yes"]


class Hidden:
    def __init__(self, depth: int = 3):
        self.k = depth

    async def run(self, task, chats, memory):
        return ["yes"]


class Split:
    def __init__(self, words: str = "a,b", size: int = 3):
        self.words, self.size = words.split(","), size

    async def run(self, task, chats, memory):
        return ["yes"]


class Bonus:
    def __init__(self, bonus: float = 0.0):
        self.bonus = bonus

    def __call__(self, episode, memory):
        return self.bonus


nine, half, hidden, split = Plain(9), Bonus(0.5), Hidden(8), Split("c,d")


async def with_k(task, chats, memory, k):
    return [str(k)]


five = partial(with_k, k=5)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    with own_folder(tmp_path, monkeypatch, own=OWN) as folder:
        yield folder


def came_back(agent):
    write_settings(Path("run/config.json"), replace(preset("demo"), agent=agent))
    return read_settings(Path("run/config.json")).agent


def test_what_a_type_can_write_comes_back(here):
    kind = load("own:Fields")
    import datetime
    import decimal
    import re

    own = kind(
        words=frozenset({"five", "six"}),
        price=decimal.Decimal("2.5"),
        pause=datetime.timedelta(seconds=90),
        since=datetime.date(2021, 2, 3),
        mark=b"abc",
        letters=re.compile("b+"),
        shape=load("own:Shape").B,
        colour=load("own:Colour").BLUE,
    )
    assert came_back(own) == own
    assert came_back(kind()) == kind()
    assert came_back(load("own:Tuple")(7)) == load("own:Tuple")(7)


def test_sets_are_written_alike_in_every_process(here):
    code = (
        "from recollect.config.overlay import to_table; import own; print(to_table(own.Fields()))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(["", *sys.path])},
        ).stdout
        for seed in range(3)
    }
    assert len(said) == 1 and "'four', 'one', 'three', 'two'" in said.pop()


def test_what_cannot_be_written_is_refused_when_it_is_read(here):
    for agent, says in {
        load("own:Odd")(range(5)): "agent.steps could not be written down: it was range(0, 5)",
        load("own:Hidden")(8): "Hidden has no attribute depth",
    }.items():
        table = to_table(replace(preset("demo"), agent=agent), None)
        assert LOST in json.dumps(table) and " at 0x" not in json.dumps(table)
        with pytest.raises(UserError, match=r"could not be written down") as caught:
            came_back(agent)
        assert says in caught.value.what
    assert came_back(load("own:Hidden")()).k == 3  # what is as usual is not lost
    assert own_sources(load("own:Odd")())  # objects without a module of their own break nothing


def test_an_object_keeps_what_it_was_made_with_on_the_command_line(here):
    words = ["--agent", "own:nine", "--reward", "own:half"]
    config = read_config(["demo", *words], "train", "demo")
    assert config.agent is load("own:nine") and config.reward is load("own:half")
    assert read_config(["demo", *words[:2], "--agent.k", "4"], "train", "demo").agent.k == 4
    assert (
        read_config(["demo", "--agent", "own:Plain", "--agent.k", "5"], "train", "demo").agent.k
        == 5
    )
    assert read_config(["demo", "--agent", "own:hidden"], "train", "demo").agent.k == 8
    assert came_back(load("own:nine")).k == 9 and came_back(load("own:hidden")).k == 8
    # A run's settings, laid over by nothing, are the run's.
    write_settings(Path("run/config.json"), replace(preset("demo"), agent=load("own:Plain")(5)))
    start = read_settings(Path("run/config.json"))
    assert read_config([], "train", "demo", start).agent.k == 5


def test_an_object_that_keeps_something_else_than_it_was_given(here, recwarn):
    changed = read_config(["demo", "--agent", "own:Split", "--agent.size", "4"], "train", "demo")
    assert changed.agent.words == ["a", "b"] and changed.agent.size == 4
    assert read_config(["demo", "--agent", "own:split"], "train", "demo").agent.words == ["c", "d"]
    assert not recwarn.list
    with pytest.raises(UserError, match=r"own:split .* does not keep words as it was given"):
        read_config(["demo", "--agent", "own:split", "--agent.size", "4"], "train", "demo")


def test_a_name_of_a_script_is_the_last_that_counts(here, monkeypatch):
    partial = load("own:five")
    monkeypatch.setattr(sys.modules["__main__"], "chosen", partial, raising=False)
    assert name_of(partial) == "own:five"
    # A name that a script's loop gives an object is soon another object's.
    made = load("own:Plain")(7)
    monkeypatch.setattr(sys.modules["__main__"], "chosen", made, raising=False)
    assert to_table(made) == {"class": "own:Plain", "k": 7}


def test_members_of_an_enum_go_by_name_or_value(here):
    kind, colours = load("own:Fields"), load("own:Colour")
    for setting, value in {
        "colour=BLUE": colours.BLUE,
        "colour=blue": colours.BLUE,
        "shape=B": load("own:Shape").B,
        "name=5": "5",
        "name=none": "none",
        "most=inf": float("inf"),
    }.items():
        [agent] = choose_agents(["own:Fields"], {}, [f"own:Fields.{setting}"]).values()
        assert getattr(agent, setting.partition("=")[0]) == value
    with pytest.raises(UserError, match="colour"):
        choose_agents(["own:Fields"], {}, ["own:Fields.colour=GREEN"])
    assert kind().colour is colours.RED


def test_a_type_that_only_a_checker_imports_is_one_message(here):
    Path("checked.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from nowhere import Kind\n\n\n"
        "@dataclass(frozen=True)\nclass Checked:\n    of: Kind | None = None\n\n"
        "    async def run(self, task, chats, memory):\n        return ['yes']\n"
    )
    with pytest.raises(UserError, match=r"checked:Checked cannot be read: name 'Kind'") as caught:
        read_config(["demo", "--agent", "checked:Checked"], "train", "demo")
    assert "TYPE_CHECKING" in caught.value.fix


def test_python_gives_memories_tools_and_metrics_as_the_command_line_does(here):
    notebook, shout = load("mine:Notebook"), load("mine:shout")
    given = {"agent": load("mine:Seeker"), "memory": notebook, "tools": [shout]}
    config = with_overrides(preset("demo"), given | {"metric": load("mine:close_enough")})
    assert config.agent.memory is notebook and config.agent.tools == (shout,)
    assert config.reward.metric is load("mine:close_enough")
    for tools in (shout, ["mine:shout"], ("mine:shout",)):
        one = with_overrides(preset("demo"), {"agent": load("mine:Seeker"), "tools": tools})
        assert one.agent.tools == (shout,)
    for odd in (5, [5]):
        with pytest.raises(UserError, match="5 is not a tool"):
            with_overrides(preset("demo"), {"agent": load("mine:Seeker"), "tools": odd})
    with pytest.raises(UserError, match=r"^5: the metric does not take"):
        with_overrides(preset("demo"), {"metric": 5})
    named = {"agent": "mine:Seeker", "memory": "mine:Notebook", "tools": "mine:shout"}
    again = with_overrides(preset("demo"), named | {"metric": "sub_exact_match"})
    assert again.agent.memory is notebook and again.reward.metric == "sub_exact_match"

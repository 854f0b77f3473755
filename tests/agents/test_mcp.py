"""Tools from a real MCP server, started over its input and output."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from recollect.agents.mcp import McpServer
from recollect.agents.resources import Resources
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.chat.tools import Call, Limits, ToolBox
from recollect.config.overlay import to_table
from recollect.errors import BoundaryError, UserError
from recollect.policies.bytes import Utf8Tokenizer
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.answers import AnswerReward
from recollect.rollout import Rollout
from recollect.types import Question, Task

# To look for it is quick, to import it takes a second in every worker; its servers do that.
pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("mcp"), reason="the extra mcp is not installed"
)
EXAMPLES = Path(__file__).parents[2] / "examples"
HOSTILE = """
import os, sys, time
from mcp.server import MCPServer
server = MCPServer("hostile")

@server.tool()
def much() -> str:
    "A long and dirty text."
    return "\\x1b[31m\\x00" + "y" * 100_000

@server.tool()
def die() -> str:
    "End the server."
    os._exit(3)

@server.tool()
def hang() -> str:
    "Never answer."
    time.sleep(60)

@server.tool()
def fail(n: int) -> str:
    "Raise an error."
    raise ValueError("no")

@server.tool()
def key() -> str:
    "Tell a secret."
    return str(os.environ.get("SECRET_OF_OURS")) + str(os.environ.get("GIVEN"))

server.run()
"""


def example():
    spec = importlib.util.spec_from_file_location("mcp_tools", EXAMPLES / "mcp_tools.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_looks_things_up_on_a_real_server():
    agent = example().Librarian()
    assert to_table(agent)["server"]["command"][1].endswith("mcp_tools.py")
    agent = agent.bind(Resources())

    def says(prompt: str) -> str:
        if "Tides follow the moon." in prompt:
            return "the moon"
        return '<tool_call>{"name": "look_up", "arguments": {"word": "tide"}}</tool_call>'

    tokenizer = Utf8Tokenizer()
    model = Model(ScriptedPolicy(tokenizer, says), Renderer(tokenizer))
    models = {"memory": model, "answer": model}
    task = Task("t", (), (Question("What do tides follow?", ("moon",)),))

    async def run():
        rollout = Rollout(agent, models, AnswerReward(metric="sub_exact_match"))
        groups = await rollout.groups([task, replace(task, id="u")], 2, (0,))
        running = agent.connection._owner
        await agent.connection.close()
        return groups, running

    groups, running = asyncio.run(run())
    for episode in (e for group in groups for e in group):
        assert episode.ok, episode.failure
        assert episode.answers == ["the moon"] and episode.reward == 1
        assert episode.contexts[0].counts["calls/look_up"] == 1
    assert running.done()


@pytest.fixture
def hostile(tmp_path):
    (tmp_path / "server.py").write_text(HOSTILE)
    return McpServer((sys.executable, str(tmp_path / "server.py")), max_result=500)


async def ask(box: ToolBox, name: str, **arguments):
    [answer] = await box.answer([Call(name, arguments)])
    return answer


def test_what_a_server_says_is_cut_cleaned_and_answered(hostile, monkeypatch):
    monkeypatch.setenv("SECRET_OF_OURS", "hush")
    monkeypatch.setenv("GIVEN", "open")

    async def run():
        connection = replace(hostile, environment=("GIVEN",)).connect()
        box = ToolBox(await connection.tools(), Limits(max_tool_response_length=100))
        [function] = [s["function"] for s in box.schemas if s["function"]["name"] == "fail"]
        assert function["parameters"]["properties"]["n"]["type"] == "integer"
        much = await ask(box, "much")
        assert much.outcome == "ok" and len(much.text) <= 100
        assert "\x1b" not in much.text and "\0" not in much.text
        failed = await ask(box, "fail", n=1)
        assert failed.outcome == "failed" and "fail" in failed.text
        assert (await ask(box, "fail", m=1)).text == (
            "Error: fail: n is missing; there is no argument 'm'"
        )
        assert (await ask(box, "fail", n="x" * 200_000)).outcome == "failed"
        told = await ask(box, "key")
        assert told.text == "Noneopen"  # a server sees what it is given, and no more
        await connection.close()

    asyncio.run(run())


def test_a_server_that_dies_or_hangs_is_not_the_agents_fault_and_is_started_again(hostile):
    async def run():
        connection = replace(hostile, timeout=1).connect()
        for name in ("die", "hang"):
            box = ToolBox(await connection.tools())
            with pytest.raises(BoundaryError) as caught:
                await ask(box, name)
            assert caught.value.name == "tool" and caught.value.fault == "environment"
        again = ToolBox(await connection.tools())
        assert (await ask(again, "much")).outcome == "ok"

    before = children()
    asyncio.run(run())  # nobody closed the connection: the end of the loop ends the server
    assert children() == before


def test_mistakes_about_a_server_are_one_message(hostile, tmp_path):
    async def tools(server):
        await server.connect().tools()

    with pytest.raises(UserError, match="the MCP server 'no-such-program' cannot be started"):
        asyncio.run(tools(McpServer(("no-such-program",))))
    with pytest.raises(UserError, match="has no tool 'nothing'"):
        asyncio.run(tools(replace(hostile, only=("nothing",))))
    with pytest.raises(UserError, match="either a command or an address"):
        McpServer()
    (tmp_path / "ends.py").write_text("")
    with pytest.raises(BoundaryError) as caught:
        asyncio.run(tools(McpServer((sys.executable, str(tmp_path / "ends.py")))))
    assert caught.value.fault == "environment"


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


class Lists:
    """A server's side of a session that lists these tools."""

    def __init__(self, *tools: object) -> None:
        self.tools = tools

    async def list_tools(self) -> Lists:
        return self


def listed(schema: object, name: str = "look", description: str = "") -> SimpleNamespace:
    return SimpleNamespace(name=name, description=description, input_schema=schema)


def deep(levels: int) -> dict[str, object]:
    schema: dict[str, object] = {}
    for _ in range(levels):
        schema = {"a": schema}
    return schema


@pytest.mark.parametrize(
    "tool",
    [
        listed({}, "two words"),
        listed({}, "\x1b[31mred"),
        listed({}, "x" * 65),
        listed({}, "\ud800"),
        listed({}, ""),
        listed([1]),
        listed("text"),
        listed({"properties": []}),
        listed({"required": "at"}),
        listed({"properties": {"at": {"description": "x" * 30_000}}}),
        listed(deep(100_000)),
    ],
)
def test_a_schema_or_a_name_that_is_none_is_refused_in_one_message(tool):
    connection = McpServer(("server",)).connect()
    with pytest.raises(UserError, match="cannot be shown to a model") as raised:
        asyncio.run(connection._listed(Lists(tool)))
    said = str(raised.value)
    assert len(said) < 600 and "\x1b" not in said and said.encode()


def test_a_server_s_descriptions_and_numbers_of_tools_are_cut():
    tools = [listed({}, f"tool{i}", "\x1b[2Jlook\u202e " * 9999) for i in range(500)]
    found = asyncio.run(McpServer(("server",), max_tools=7).connect()._listed(Lists(*tools)))
    assert len(found) == 7
    assert all(len(t.description) <= 2000 and "\x1b" not in t.description for t in found)


@pytest.mark.parametrize(
    "url",
    [
        *("http://me:hush@host/mcp", "http://host/mcp?api_key=hush"),
        *("file:///etc/passwd", "ftp://host/mcp", "host:8000/mcp", "http://", "http://[::1/mcp"),
        *("http://host:99999/mcp", "http://ho st/mcp", "http://host/\nX-Header: 1"),
    ],
)
def test_addresses_that_are_none_or_hold_a_secret_are_refused(url):
    with pytest.raises(UserError) as raised:
        McpServer(url=url)
    assert "hush" not in str(raised.value) and "\n" not in raised.value.what

"""A memory behind MCP: the official client starts the real command and talks to it."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from recollect.cli import main
from tests.commands.test_ask import SMALL, respond
from tests.support.chat_server import chat_server

# To look for it is quick, to import it takes a second in every worker.
pytestmark = pytest.mark.skipif(not find_spec("mcp"), reason="the extra mcp is not installed")


def command(url: str, folder: Path, *more: str) -> list[str]:
    return ["-m", "recollect", "mcp", url, "--memories", str(folder), *more, *SMALL]


@asynccontextmanager
async def connected(args: list[str], log: Path):
    import mcp

    started = mcp.StdioServerParameters(command=sys.executable, args=args, env={**os.environ})
    with open(log, "w") as errors:
        async with (
            mcp.stdio_client(started, errors) as (reading, writing),
            mcp.ClientSession(reading, writing) as session,
        ):
            await session.initialize()
            yield session


async def call(session, name: str, **arguments):
    result = await session.call_tool(name, arguments)
    if result.is_error:
        return result.content[0].text
    return result.structured_content


def server_process(log: Path) -> int:
    """The process whose errors go to the log: the server, started by the client."""
    for found in Path("/proc").glob("[0-9]*/fd/2"):
        try:
            if os.readlink(found) == str(log):
                return int(found.parts[2])
        except OSError:
            continue
    raise AssertionError("no server")


def test_a_client_remembers_recalls_and_forgets_also_after_a_kill(tmp_path):
    folder, log = tmp_path / "memories", tmp_path / "log"

    async def first(args):
        async with connected(args, log) as session:
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            assert set(tools) == {"remember", "recall", "forget"}
            assert tools["remember"].input_schema["required"] == ["text"]
            seen = []

            async def watch(done, total, message):
                seen.append((done, total))

            text = "Anna owns the house. " + "It rained. " * 60 + "Abel is her cat."
            kept = await session.call_tool("remember", {"text": text}, progress_callback=watch)
            anna = kept.structured_content
            assert anna["memory"]["text"] == "Anna Abel" and anna["memory"]["items"] == 1
            assert seen[-1] == (len(seen) - 1, len(seen) - 1) and len(seen) > 3
            await call(session, "remember", text="Agnes came later.")
            found = await call(session, "recall", question="Who came later?")
            assert found["answer"] == "They are Anna Abel Agnes"
            assert found["passages"][0]["text"] == "Agnes came later."
            assert found["cost"]["answer"]["calls"] == 1
            os.kill(server_process(log), signal.SIGKILL)
            return anna["id"], found["memory"]["hash"]

    async def again(args, anna, before):
        async with connected(args, log) as session:
            shown = await call(session, "recall")
            assert shown["memory"]["hash"] == before and shown["of"] == 2
            left = await call(session, "forget", id=anna)
            assert left["memory"]["text"] == "Agnes" and left["memory"]["hash"] != before
            assert (await call(session, "recall", question="Who?"))["answer"] == "They are Agnes"
            return left["memory"]["hash"]

    async def elsewhere(args):
        async with connected(args, log) as session:
            assert (await call(session, "recall"))["of"] == 0
            only = await call(session, "remember", text="Agnes came later.")
            assert await call(session, "forget", everything=True) == {"forgotten": 1}
            assert (await call(session, "recall"))["of"] == 0
            return only["memory"]["hash"]

    with chat_server(respond) as server:
        args = command(server.url, folder)
        anna, before = asyncio.run(first(args))
        readings = sum("<section>" in text for text in server.texts)
        after = asyncio.run(again(args, anna, before))
        # Nothing that was read is read again, but for what comes after what was forgotten.
        assert sum("<section>" in text for text in server.texts) == readings + 1
        assert asyncio.run(elsewhere(command(server.url, folder, "--user", "eva"))) == after
    assert "Anna" not in "".join(p.read_text() for p in folder.rglob("*") if p.is_file())
    assert log.read_text() == ""


def test_mistakes_are_answered_in_one_line_and_lose_nothing(tmp_path):
    down = []

    def failing(text: str):
        return 400 if down and "<section>" in text else respond(text)

    async def run(args):
        async with connected(args, tmp_path / "log") as session:
            for wrong, message in (
                ({}, "Error: remember: text is missing"),
                ({"text": 5}, "Error: remember: text must be a text, not 5"),
                ({"text": " \n"}, "Error: remember: text is empty"),
                ({"text": "a", "b": 1}, "Error: remember: there is no argument 'b', only text"),
            ):
                assert await call(session, "remember", **wrong) == message
            assert await call(session, "forget", id="x\ny") == (
                "Error: forget: there is no item x y"
            )
            assert "either an id or everything" in await call(session, "forget")
            assert "there is no tool 'nothing'" in await call(session, "nothing")
            down.append(True)
            said = await call(session, "remember", text="Adam lives.")
            assert "is stored as item" in said and "\n" not in said
            down.clear()
            assert (await call(session, "recall"))["memory"]["text"] == "Adam"
            odd = "Ada \x1b[31m \ud83d\x00 \u202e"
            assert (await call(session, "remember", text=odd.encode("utf-8", "ignore").decode()))[
                "memory"
            ]["items"] == 2

    with chat_server(failing) as server:
        asyncio.run(run(command(server.url, tmp_path / "memories")))


def test_a_server_says_what_is_wrong_and_ends_with_its_input(tmp_path, capsys):
    def refused(*args) -> str:
        assert main(["mcp", *map(str, args)]) == 2
        out = capsys.readouterr()
        assert not out.out and "fix:" in out.err and "Traceback" not in out.err
        return out.err

    assert "nowhere" in refused("nowhere", "--memories", tmp_path)
    with chat_server(respond) as server:
        assert "fould" in refused(server.url, "--memories", tmp_path, "--agent", "fould")
        assert "needs the name" in refused(server.url, "--memories", tmp_path, "--user", "")
        kept = "RagAgent keeps no memory"
        assert kept in refused(server.url, "--memories", tmp_path, "--agent", "rag")
        started = [sys.executable, *command(server.url, tmp_path)]
        ended = subprocess.run(started, input=b"nonsense\n", capture_output=True, timeout=60)
    assert ended.returncode == 0 and b"Traceback" not in ended.stderr
    assert all(line.startswith(b'{"jsonrpc"') for line in ended.stdout.splitlines())

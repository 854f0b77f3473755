"""Tools from an MCP server, for an agent of yours: `McpServer(("python", "server.py")).connect()`.

What a server says is foreign: names are checked, texts are cut and cleaned, every wait has an end.
A server that dies or hangs fails the episode without fault of the agent, and is started again for
the next one. Needs the extra `mcp`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

from recollect.bounds import ABOVE_0, FROM_1, check_bounds
from recollect.chat.tools import Tool, ToolFailed
from recollect.errors import UserError, boundary
from recollect.foreign import has_credentials, redact, shown
from recollect.packaging import install
from recollect.policies.client import is_address

T = TypeVar("T")
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Names of tools that chat templates and servers can write."""
DESCRIPTION = 2000
"""Characters of a description that a model is shown."""
SCHEMA = 20_000
"""Characters of a tool's schema of arguments."""
ARGUMENTS = 100_000
"""Characters of the arguments of one call."""


@dataclass(frozen=True)
class McpServer:
    """Where a server of tools is, and how far it is trusted."""

    command: tuple[str, ...] = ()
    """Starts the server, which is spoken to over its input and output."""
    url: str = ""
    """The address of a running server instead, such as http://localhost:8000/mcp."""
    only: tuple[str, ...] = ()
    """The tools that are used; by default all that the server lists."""
    environment: tuple[str, ...] = ()
    """Names of environment variables that a started server sees, beside PATH and HOME."""
    timeout: float = 30.0
    """Seconds for every call."""
    start_timeout: float = 60.0
    """Seconds until the server has listed its tools."""
    max_tools: int = 64
    max_result: int = 20_000
    """Characters of one result; an agent's `Limits` may show fewer."""

    def __post_init__(self) -> None:
        check_bounds("agent.server", self, timeout=ABOVE_0, start_timeout=ABOVE_0)
        check_bounds("agent.server", self, max_tools=FROM_1, max_result=FROM_1)
        if bool(self.command) == bool(self.url):
            raise UserError(
                "an MCP server has either a command or an address", "set one of command and url"
            )
        if self.url and not is_address(self.url):
            raise UserError(
                f"{redact(self.url)!r} is not the address of a server",
                "write it like http://localhost:8000/mcp",
            )
        if has_credentials(self.url):
            raise UserError(
                f"the address {redact(self.url)} holds a password or a key, and is stored",
                "leave it out, and let a proxy or the server's own settings add it",
            )

    def connect(self) -> McpConnection:
        """Return a connection that opens when its tools are asked for; call this in `bind`."""
        return McpConnection(self)


@dataclass(frozen=True)
class McpTool(Tool):
    """A tool that a server carries out, with the schema that the server gives it."""

    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def schema(self) -> dict[str, Any]:
        """Return the description that chat templates and endpoints take."""
        function = {"name": self.name, "description": self.description}
        return {"type": "function", "function": {**function, "parameters": dict(self.arguments)}}

    def checked(self, arguments: Mapping[str, Any], untyped: bool = False) -> dict[str, Any]:
        """Check names and sizes; the types are the server's to check."""
        known = self.arguments.get("properties") or {}
        needed = self.arguments.get("required") or []
        wrong = [f"{name} is missing" for name in needed if name not in arguments]
        if self.arguments.get("additionalProperties") is False or known:
            unknown = [name for name in arguments if name not in known]
            wrong += [f"there is no argument {name!r:.60}" for name in unknown]
        if len(json.dumps(dict(arguments), default=str)) > ARGUMENTS:
            wrong.append(f"the arguments are longer than {ARGUMENTS} characters")
        if wrong:
            raise ToolFailed(f"Error: {self.name}: {'; '.join(wrong)}")
        return {
            name: _read(known.get(name), value) if untyped else value
            for name, value in arguments.items()
        }


class McpConnection:
    """A session with one server, shared by the episodes of a process."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self._owner: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[tuple[Tool, ...]] | None = None

    async def tools(self) -> tuple[Tool, ...]:
        """Return the server's tools; start the server if it does not run."""
        loop = asyncio.get_running_loop()
        if self._owner is None or self._owner.done() or self._owner.get_loop() is not loop:
            self._opened = loop.create_future()
            # A task of its own: a session has to be closed where it was opened.
            self._owner = loop.create_task(self._own(self._opened))
        assert self._opened is not None
        with boundary("tool"):
            opened = asyncio.shield(self._opened)
            found: tuple[Tool, ...] = await _within(opened, self.server.start_timeout, "start")
            return found

    async def close(self) -> None:
        """End the session, and the server if it was started here; the end of the loop does, too."""
        if self._owner is not None and not self._owner.done():
            self._owner.cancel()
            await asyncio.wait({self._owner})

    async def _own(self, opened: asyncio.Future[tuple[Tool, ...]]) -> None:
        """Hold the session open until it is cancelled."""
        try:
            async with AsyncExitStack() as stack:
                session = await _session(self.server, stack)
                opened.set_result(await self._listed(session))
                await asyncio.get_running_loop().create_future()
        except BaseException as error:
            if not opened.done():
                opened.set_exception(_first(error))
                opened.exception()  # retrieved: whoever waited may have left
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _listed(self, session: Any) -> tuple[Tool, ...]:
        found: dict[str, Tool] = {}
        listed = (await session.list_tools()).tools
        for tool in listed[: self.server.max_tools]:
            if not self.server.only or tool.name in self.server.only:
                found[tool.name] = self._tool(session, tool)
        if missing := [name for name in self.server.only if name not in found]:
            names = ", ".join(shown(f"{tool.name:.64}") for tool in listed[:20]) or "none"
            raise UserError(f"the MCP server has no tool {missing[0]!r}", f"choose from {names}")
        return tuple(found.values())

    def _tool(self, session: Any, tool: Any) -> Tool:
        schema = tool.input_schema or {}
        if not NAME.fullmatch(tool.name) or not _sound(schema):
            raise UserError(
                f"the MCP server's tool {shown(f'{tool.name:.64}')!r} cannot be shown to a"
                " model: its name has other characters, or its schema is none or has more than"
                f" {SCHEMA}",
                "name the tools to use in the server's setting `only`",
            )
        name, text = tool.name, shown(" ".join((tool.description or "").split()))[:DESCRIPTION]

        async def call(**arguments: Any) -> str:
            with boundary("tool"):
                try:
                    asked = session.call_tool(name, arguments)
                    result = await _within(asked, self.server.timeout, name)
                except Exception:  # whatever it was: the next episode starts the server anew
                    await self.close()
                    raise
            said = "\n".join(getattr(c, "text", f"[{c.type}]") for c in result.content)
            said = shown(said[: self.server.max_result])
            if result.is_error:
                raise ToolFailed(said or f"Error: {name} failed")
            return said

        return McpTool(name, text, (), call, schema)


def _sound(schema: Any) -> bool:
    """Tell whether a schema has the form of one, and a length that a prompt has room for."""
    match schema:
        case {"properties": properties} if not isinstance(properties, dict):
            return False
        case {"required": required} if not isinstance(required, list):
            return False
    try:
        return isinstance(schema, dict) and len(json.dumps(schema)) <= SCHEMA
    except (ValueError, RecursionError):
        return False


async def _within(waiting: Awaitable[T], seconds: float, what: str) -> T:
    try:
        return await asyncio.wait_for(waiting, seconds)
    except TimeoutError:
        raise TimeoutError(f"the MCP server did not answer in {seconds:g} s ({what})") from None


async def _session(server: McpServer, stack: AsyncExitStack) -> Any:
    """Open a session that ends with the stack."""
    try:
        from mcp import ClientSession, StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client
    except ImportError as error:
        raise UserError("tools of an MCP server need the package mcp", install("mcp")) from error
    if server.url:
        streams = await stack.enter_async_context(streamable_http_client(server.url))
    else:
        own = {name: os.environ[name] for name in server.environment if name in os.environ}
        command, *args = server.command
        started = StdioServerParameters(command=command, args=args, env=own)
        quiet = stack.enter_context(open(os.devnull, "w"))  # noqa: SIM115 - closed with the stack
        try:
            streams = await stack.enter_async_context(stdio_client(started, quiet))
        except (FileNotFoundError, PermissionError) as error:
            raise UserError(
                f"the MCP server {command!r} cannot be started ({error.strerror})",
                "correct the command in the server's settings",
            ) from error
    session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
    await session.initialize()
    return session


def _first(error: BaseException) -> BaseException:
    """Return the error in a group of them; one that was cancelled never started."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, asyncio.CancelledError):
        return ConnectionError("the MCP server was closed while it was started")
    return error


def _read(schema: Any, text: Any) -> Any:
    """Read an argument that was written as bare text, unless it is to be a text."""
    if not isinstance(text, str) or not isinstance(schema, dict) or schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text

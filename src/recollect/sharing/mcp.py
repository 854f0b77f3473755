"""Tools served to an MCP client over standard input and output (the other side: `agents.mcp`).

Nothing but the protocol is written to standard output, and every mistake is an answer of one line.
Knows nothing of memories, except that a call may report how far a reading is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from recollect.chat.tools import Call, Limits, Tool, ToolBox
from recollect.errors import BoundaryError, UserError
from recollect.foreign import one_line
from recollect.keeping.keeper import Progress
from recollect.packaging import install, version
from recollect.sharing.tools import report

LONGEST = 1 << 20
"""Characters of one result."""


def check_installed() -> None:
    """Refuse to start without the package that speaks the protocol."""
    try:
        import mcp  # noqa: F401
    except ImportError as error:
        raise UserError("an MCP server needs the package mcp", install("mcp")) from error


async def serve_tools(name: str, tools: Sequence[Tool], instructions: str = "") -> None:
    """Answer a client's calls until it closes our input."""
    import mcp_types as types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    box = ToolBox(tuple(tools), Limits(max_tool_response_length=LONGEST))

    async def listed(_context: Any, _params: Any) -> Any:
        functions = [schema["function"] for schema in box.schemas]
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=function["name"],
                    description=function["description"],
                    input_schema=function["parameters"],
                )
                for function in functions
            ]
        )

    async def called(context: Any, params: Any) -> Any:
        text, failed = await answer(box, Call(params.name, params.arguments or {}), context.session)
        content: list[Any] = [types.TextContent(type="text", text=text)]
        said = None if failed else json.loads(text)
        return types.CallToolResult(content=content, structured_content=said, is_error=failed)

    server = Server(
        name,
        version=version(),
        instructions=instructions,
        on_list_tools=listed,
        on_call_tool=called,
    )
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


async def answer(box: ToolBox, call: Call, session: Any) -> tuple[str, bool]:
    """Carry out a call; return what it says, and whether that is a mistake."""
    sent: list[asyncio.Task[None]] = []

    def tell(progress: Progress) -> None:
        said = session.report_progress(progress.window, progress.windows)
        sent.append(asyncio.ensure_future(said))

    report.set(tell)
    try:
        [found] = await box.answer([call])
    except (UserError, BoundaryError) as error:
        return f"Error: {call.name}: {one_line(str(error), 1000)}", True
    finally:
        await asyncio.gather(*sent, return_exceptions=True)  # before the answer, or never
    return (found.text, False) if found.outcome == "ok" else (one_line(found.text, 1000), True)

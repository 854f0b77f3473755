"""An agent whose tools come from an MCP server, started once for all episodes of a run.

recollect train demo --agent examples/mcp_tools.py:Librarian
recollect eval --agents fold,examples/mcp_tools.py:Librarian --tasks recall@1k --model URL
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from recollect import Limits, ToolBox, converse, user
from recollect.agents.mcp import McpConnection, McpServer

LIBRARY = McpServer((sys.executable, str(Path(__file__).with_name("mcp_server.py"))))


@dataclass(frozen=True)
class Librarian:
    """Answers questions with a library at hand."""

    server: McpServer = LIBRARY
    limits: Limits = Limits(max_assistant_turns=3, max_turn_tokens=64, min_reply_tokens=8)
    connection: McpConnection | None = None

    def bind(self, resources):
        """Hold a connection: it is opened by the first episode that asks for tools."""
        return replace(self, connection=self.server.connect())

    async def run(self, task, chats, memory):
        box = ToolBox(await self.connection.tools(), self.limits)
        answers = []
        for i, question in enumerate(task.questions):
            chat = chats.open("answer", question=i, tools=box.schemas)
            ended = await converse(chat, [user(question.text)], box)
            memory.text = "\n".join(answer.text for answer in ended.answers)
            answers.append(ended.text)
        return answers

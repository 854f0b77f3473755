"""An agent whose tools come from an MCP server: `--agent examples/mcp_tools.py:Librarian`."""

import asyncio
import sys
from dataclasses import dataclass, replace

import recollect
from recollect import AnswerReward, Limits, Question, Rollout, ScriptedPolicy, Task, ToolBox
from recollect.agents.mcp import McpConnection, McpServer


@dataclass(frozen=True)
class Librarian:
    server: McpServer = McpServer((sys.executable, __file__, "serve"), environment=("PYTHONPATH",))
    limits: Limits = Limits(max_assistant_turns=3, max_turn_tokens=128, min_reply_tokens=8)
    connection: McpConnection | None = None

    def bind(self, resources):
        return replace(self, connection=self.server.connect())  # one server for all episodes

    async def run(self, task, chats, memory):
        tools = ToolBox(await self.connection.tools(), self.limits)
        chat = chats.open("answer", tools=tools.schemas)
        asked = recollect.user(task.questions[0].text)
        return [(await recollect.converse(chat, [asked], tools)).text]


def look_up(word: str) -> str:
    """Look a word up in the library."""
    return {"tide": "Tides follow the moon."}.get(word, "There is nothing about it.")


def script(prompt: str) -> str:  # stands in for a model
    call = '<tool_call>{"name": "look_up", "arguments": {"word": "tide"}}</tool_call>'
    return r"\boxed{the moon}" if "Tides follow" in prompt else call


if __name__ == "__main__" and sys.argv[1:] == ["serve"]:
    from mcp.server import MCPServer

    server = MCPServer("library")
    server.tool()(look_up)
    server.run()
elif __name__ == "__main__":
    task = Task("sea", [], (Question("What do tides follow?", ("the moon",)),))
    agent, models = Librarian().bind(None), {"answer": ScriptedPolicy.model(script)}
    rollout = Rollout(agent, models, AnswerReward())
    episode = asyncio.run(rollout.episode(task, 0, ("example",)))
    print(f"answer {episode.answers[0]}, reward {episode.reward}")

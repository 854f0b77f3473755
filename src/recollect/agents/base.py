"""The Agent protocol: a way of remembering, as one async function."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from recollect.chat.chat import Chats
from recollect.memory.base import Memory
from recollect.types import Task


class Agent(Protocol):
    """Read a task's chunks, keep a memory, answer its questions. Agents hold no state."""

    def new_memory(self, task: Task) -> Memory:
        """Open the memory one episode starts with; whoever runs the episode closes it."""

    async def run(self, task: Task, chats: Chats, memory: Any) -> list[str]:
        """Return one answer per question, in order."""


@runtime_checkable
class Bounded(Protocol):
    """An agent that can tell from its settings alone that they do not fit a model."""

    def check_window(self, window: int) -> None:
        """Refuse settings that cannot fit a model's window."""


def check_window(agent: Agent, window: int) -> None:
    """Refuse an agent whose settings cannot fit a model's window, if it can tell."""
    if isinstance(agent, Bounded):
        agent.check_window(window)

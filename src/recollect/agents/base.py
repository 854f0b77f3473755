"""The Agent protocol: a way of remembering, as one async function."""

from __future__ import annotations

from typing import Any, Protocol

from recollect.chat import Chats
from recollect.memory.base import Memory
from recollect.types import Task


class Agent(Protocol):
    """Read a task's chunks, keep a memory, answer its questions. Agents hold no state."""

    def new_memory(self, task: Task) -> Memory:
        """Open the memory one episode starts with; whoever runs the episode closes it."""

    async def run(self, task: Task, chats: Chats, memory: Any) -> list[str]:
        """Return one answer per question, in order."""

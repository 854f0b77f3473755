"""Closed book: no text, only the question. What a model scores so, it knew before."""

from __future__ import annotations

from dataclasses import dataclass

from recollect.agents.asking import FROM_KNOWLEDGE, ask
from recollect.agents.prompts import fill
from recollect.bounds import FROM_1, check_bounds
from recollect.chat.chat import Chats
from recollect.memory.text import TextMemory
from recollect.types import Task


@dataclass(frozen=True)
class ClosedBookAgent:
    """Answer every question without having read anything."""

    max_answer_tokens: int = 1024

    def __post_init__(self) -> None:
        check_bounds("agent", self, max_answer_tokens=FROM_1)

    def new_memory(self, task: Task) -> TextMemory:
        """Keep nothing."""
        return TextMemory()

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        """Ask all questions at once: where they stand in the text makes no difference."""
        answers = await ask(
            chats,
            dict(enumerate(task.questions)),
            lambda _i, question: fill(FROM_KNOWLEDGE, problem=question.text),
            self.max_answer_tokens,
        )
        return [answers[i] for i in range(len(task.questions))]

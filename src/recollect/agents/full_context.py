"""Full context: no memory but the window. Each question comes with the text, or what fits of it."""

from __future__ import annotations

from dataclasses import dataclass

from recollect.agents.asking import ask, from_text, room_for_text, tokenizer_of
from recollect.agents.clipping import TRUNCATIONS, Truncation, clip
from recollect.bounds import FROM_1, check_bounds
from recollect.chat.chat import Chats
from recollect.errors import UserError
from recollect.memory.text import TextMemory
from recollect.types import Question, Task


@dataclass(frozen=True)
class FullContextAgent:
    """Answer every question from all text up to it."""

    truncation: Truncation = "middle"
    """What a text keeps that is longer than the window: middle leaves the middle out, head and tail
    keep that end, error fails the episode."""
    max_context_tokens: int | None = None
    """Tokens of text at most, even where the window has room for more."""
    max_answer_tokens: int = 1024

    def __post_init__(self) -> None:
        check_bounds("agent", self, max_context_tokens=FROM_1, max_answer_tokens=FROM_1)
        if self.truncation not in TRUNCATIONS:
            raise UserError(
                f"truncation is {self.truncation!r}", f"choose from {', '.join(TRUNCATIONS)}"
            )

    def new_memory(self, task: Task) -> TextMemory:
        """Keep nothing between chats."""
        return TextMemory()

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        """Ask each question after the text before it, and after no later text."""
        count = len(task.chunks)
        groups: dict[int, dict[int, Question]] = {}
        for i, question in enumerate(task.questions):
            end = count if question.position is None else min(count, question.position + 1)
            groups.setdefault(end, {})[i] = question
        answers: dict[int, str] = {}
        for end in sorted(groups):
            answers |= await self._ask(task, end, groups[end], chats)
        return [answers[i] for i in range(len(task.questions))]

    async def _ask(
        self, task: Task, end: int, questions: dict[int, Question], chats: Chats
    ) -> dict[int, str]:
        # One cut for all questions: they share the text as a prefix, and it is tokenised once.
        model = chats.model("answer")
        room = min(room_for_text(model, q, self.max_answer_tokens) for q in questions.values())
        limit = room if self.max_context_tokens is None else min(room, self.max_context_tokens)
        tokenizer = tokenizer_of(chats, "answer")
        text, cut = clip(task.chunks, end, limit, self.truncation, tokenizer)
        return await ask(
            chats,
            questions,
            lambda _i, question: from_text(question, text),
            self.max_answer_tokens,
            {i: {"truncated": 1} for i in questions} if cut else None,
        )

"""Oracle evidence: each question with exactly the chunks that hold its answer.

An upper bound for every memory with the same reader: what is missed here, reading missed.
"""

from __future__ import annotations

from dataclasses import dataclass

from recollect.agents.asking import ask, from_text, room_for_text, tokenizer_of
from recollect.agents.clipping import clip
from recollect.bounds import FROM_1, check_bounds
from recollect.chat.chat import Chats
from recollect.memory.text import TextMemory
from recollect.types import Question, Task


@dataclass(frozen=True)
class OracleAgent:
    """Answer every question from its evidence; too much of it for the window fails the episode.

    A question that names no evidence is shown no text, which its chat's counts tell.
    """

    max_answer_tokens: int = 1024

    def __post_init__(self) -> None:
        check_bounds("agent", self, max_answer_tokens=FROM_1)

    def new_memory(self, task: Task) -> TextMemory:
        """Keep nothing."""
        return TextMemory()

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        """Ask all questions, each from its own chunks in the order of the text."""
        questions = dict(enumerate(task.questions))
        texts = {i: self._evidence(task, question, chats) for i, question in questions.items()}
        without = [i for i, question in questions.items() if not question.evidence]
        answers = await ask(
            chats,
            questions,
            lambda i, question: from_text(question, texts[i]),
            self.max_answer_tokens,
            {i: {"no evidence": 1} for i in without},
        )
        return [answers[i] for i in questions]

    def _evidence(self, task: Task, question: Question, chats: Chats) -> list[int]:
        chunks = [task.chunks[at] for at in sorted(set(question.evidence))]
        room = room_for_text(chats.model("answer"), question, self.max_answer_tokens)
        return clip(chunks, len(chunks), room, "error", tokenizer_of(chats, "answer"))[0]

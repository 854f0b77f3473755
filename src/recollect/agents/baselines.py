"""Baselines without a memory: closed book, full context, and oracle evidence.

Closed book asks without any text: what a model scores so, it knew before. Full context gives each
question the text, or what fits of it. The oracle gives it exactly the chunks with its answer:
an upper bound for every memory with the same reader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from recollect.agents.base import Agent, owns, sees_answers
from recollect.agents.reading import FROM_KNOWLEDGE, ask, from_text, room_for_text, tokenizer_of
from recollect.agents.templates import fill
from recollect.bounds import FROM_1, check_bounds
from recollect.chat.chat import Chats, ContextFull
from recollect.chat.rendering import Tokenizer
from recollect.errors import UserError
from recollect.memory.text import TextMemory
from recollect.types import Question, Task

Truncation = Literal["head", "tail", "middle", "error"]
TRUNCATIONS: tuple[Truncation, ...] = get_args(Truncation)
"""What a text that is too long keeps: its start, its end, both without the middle; or it fails."""


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
        """Ask all questions at once: their positions in the text make no difference."""
        answers = await ask(
            chats,
            dict(enumerate(task.questions)),
            lambda _i, question: fill(FROM_KNOWLEDGE, problem=question.text),
            self.max_answer_tokens,
        )
        return [answers[i] for i in range(len(task.questions))]


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


@dataclass(frozen=True)
class OracleAgent:
    """Answer every question from its evidence; too much of it for the window fails the episode.

    A question that names no evidence is shown no text, which its chat's counts tell.
    """

    sees_answers: ClassVar[bool] = True
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


def is_bound(agent: Agent) -> bool:
    """Tell whether an agent may answer from what it is shown of the accepted answers.

    Of ours only the oracle does. Others count them, and so does one of a user's that inherits what
    reads the task.
    """
    own = owns(agent, "sees_answers", "run", "new_memory")
    return sees_answers(agent) and (isinstance(agent, OracleAgent) or own)


def clip(
    chunks: Sequence[str], end: int, limit: int, truncation: Truncation, tokenizer: Tokenizer
) -> tuple[list[int], bool]:
    """Return at most `limit` tokens of the chunks before `end`, and whether any were left out.

    Texts may be lazy and far longer than memory: whatever is left out is never held, and what lies
    between a head and a tail is not even made.
    """

    def encoded(i: int) -> list[int]:
        return tokenizer.encode("\n\n" + chunks[i] if i else chunks[i])

    tail_limit = {"head": 0, "error": 0, "middle": limit // 2, "tail": limit}[truncation]
    head: list[int] = []
    for i in range(end):
        ids = encoded(i)
        room = limit - tail_limit - len(head)
        head += ids[:room]
        if len(ids) > room:
            break
    else:
        return head, False
    if truncation == "error":
        raise ContextFull(f"the text is longer than the {limit} tokens that fit the window")
    if not tail_limit:
        return head, True
    tail: deque[list[int]] = deque()
    held = 0
    for j in range(end - 1, i - 1, -1):
        if held > tail_limit:
            break
        tail.appendleft(encoded(j) if j > i else ids[room:])
        held += len(tail[0])
    kept = [token for piece in tail for token in piece]
    return head + kept[max(0, held - tail_limit) :], held > tail_limit

"""Fold: read chunk by chunk, rewrite one text memory each time, answer from it (MemAgent's loop).

Each chunk and each question is a context of its own, so nothing but the memory is carried along.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recollect.agents.estimates import (
    Lengths,
    Work,
    check_chunks,
    reading_work,
    text_lengths,
)
from recollect.agents.reading import (
    UNKNOWN_PROBLEM,
    Ask,
    Span,
    Window,
    ask,
    known_problem,
    read_and_ask,
    spans,
    tokenizer_of,
    unasked,
    windows,
)
from recollect.agents.templates import check_fields, fill, read_templates, solve_from
from recollect.bounds import FROM_1, check_bounds
from recollect.chat.chat import Chats
from recollect.chat.rendering import Message, Part, Tokenizer
from recollect.errors import UserError
from recollect.memory.text import TextMemory
from recollect.types import Question, Task

NO_MEMORY = "No previous memory"
PUBLISHED = {"memory_first": "TEMPLATE", "answer": "TEMPLATE_FINAL_BOXED"}
"""What MemAgent's code calls its prompts; it has none with the chunk first."""


@dataclass(frozen=True)
class FoldPrompts:
    """Texts with the fields {problem}, {memory} and {chunk}."""

    chunk_first: str = (
        "You are reading a long text one section at a time, to solve a problem later. Here are the"
        " problem, the next section, and your memory of the sections before it.\n\n"
        "<problem>\n{problem}\n</problem>\n\n<section>\n{chunk}\n</section>\n\n"
        "<memory>\n{memory}\n</memory>\n\n"
        "Rewrite the memory: add what the section says that helps with the problem, and keep"
        " everything in it that still matters. Reply with the new memory only.\n\nNew memory:"
    )
    memory_first: str = (
        "You are reading a long text one section at a time, to solve a problem later. Here are the"
        " problem, your memory of the sections so far, and the next section.\n\n"
        "<problem>\n{problem}\n</problem>\n\n<memory>\n{memory}\n</memory>\n\n"
        "<section>\n{chunk}\n</section>\n\n"
        "Rewrite the memory: add what the section says that helps with the problem, and keep"
        " everything in it that still matters. Reply with the new memory only.\n\nNew memory:"
    )
    answer: str = (
        f"You have read a long text and kept a memory of it. {solve_from('the memory')}"
        "\n\n<problem>\n{problem}\n</problem>\n\n"
        "<memory>\n{memory}\n</memory>\n\nYour answer:"
    )
    unknown_problem: str = UNKNOWN_PROBLEM
    """Takes the problem's place where the memory is written without knowing it."""
    published: Path | None = None
    """A file of MemAgent's code, recurrent/impls/memory.py: its prompts take the place of
    memory_first and answer, word for word, as released checkpoints were trained with them."""

    def text(self, name: str) -> str:
        """Return a prompt, the published one where a file is named."""
        if self.published is None or name not in PUBLISHED:
            return str(getattr(self, name))
        found = read_templates(self.published).get(PUBLISHED[name])
        if found is None:
            raise UserError(
                f"{self.published} has no {PUBLISHED[name]}",
                "name recurrent/impls/memory.py of MemAgent with --agent.prompts.published",
            )
        check_fields(name, found, {"problem", "memory"}, {"chunk"})
        return found

    def __post_init__(self) -> None:
        needed = {
            "chunk_first": {"chunk", "memory"},
            "memory_first": {"chunk", "memory"},
            "answer": {"problem", "memory"},
        }
        for name, fields in needed.items():
            check_fields(name, getattr(self, name), fields, {"problem"})


@dataclass(frozen=True)
class FoldAgent:
    """memory := policy(problem, chunk, memory) for every chunk; then answer from the memory."""

    chunk_size: int | None = 5000
    """Tokens per chunk; None takes the task's own chunks as they are."""
    max_memory_tokens: int = 1024
    max_answer_tokens: int = 1024
    max_chunks: int | None = None
    """Longer texts lose their middle: the first and the last half of this many chunks are read."""
    order: Literal["chunk_first", "memory_first"] = "chunk_first"
    """Chunk first lets siblings share the prompt's prefix; memory first is the published order."""
    query_aware: bool = True
    """Whether the questions are known while reading."""
    prompts: FoldPrompts = FoldPrompts()
    """Texts with the fields {problem}, {memory} and {chunk}."""

    def __post_init__(self) -> None:
        names = ("chunk_size", "max_memory_tokens", "max_answer_tokens", "max_chunks")
        check_bounds("agent", self, **dict.fromkeys(names, FROM_1))
        if self.order not in ("chunk_first", "memory_first"):
            raise UserError(f"order is {self.order!r}", "choose from chunk_first, memory_first")
        if self.prompts.published and self.order != "memory_first":
            raise UserError(
                "the published prompts show the memory before the chunk",
                "set --agent.order memory_first",
            )

    def lengths(self, window: int | None) -> Lengths:
        """Bound the contexts: a chunk, the problem and the memory."""
        shown = self.chunk_size and self.chunk_size + self.max_memory_tokens
        return text_lengths(shown, self.max_memory_tokens, self.max_answer_tokens, window)

    def work(self, task: Task, tokenizer: Tokenizer, window: int) -> Work:
        """Add up one episode."""
        sizes = [len(ids) for ids, _ in windows(task, tokenizer, self.chunk_size, self.max_chunks)]
        limits = (self.max_memory_tokens, self.max_answer_tokens)
        return reading_work(sizes, len(task.questions), *limits)

    def check_window(self, window: int) -> None:
        """Refuse settings that cannot fit a model's window, and prompts that cannot be read."""
        for name in ("answer", self.order):
            self.prompts.text(name)
        check_chunks(self.chunk_size, self.max_memory_tokens, 2, window)

    def new_memory(self, task: Task) -> TextMemory:
        """Start with nothing written."""
        return TextMemory()

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        """Fold the chunks into the memory, asking each question at its position."""
        return await self._fold(task, chats, memory, lambda due: self._ask(due, chats, memory))

    async def read(self, task: Task, chats: Chats, memory: TextMemory) -> None:
        """Fold the chunks into the memory, answering nothing."""
        await self._fold(task, chats, memory, unasked)

    async def _fold(self, task: Task, chats: Chats, memory: TextMemory, asks: Ask) -> list[str]:
        unknown = self.prompts.unknown_problem
        problem = known_problem(task, unknown) if self.query_aware else unknown
        steps = spans(task, tokenizer_of(chats, "memory"), self.chunk_size, self.max_chunks)

        async def read(chunk: list[int], span: Span, label: str) -> None:
            await self._update(problem, chunk, label, chats, memory, span)

        return await read_and_ask(task, steps, read, asks)

    async def _update(
        self,
        problem: str,
        chunk: list[int],
        label: str,
        chats: Chats,
        memory: TextMemory,
        span: Span | None = None,
    ) -> None:
        template = self.prompts.text(self.order)
        prompt = fill(template, problem=problem, chunk=chunk, memory=_shown(memory))
        chat = chats.open("memory", label=label)
        chat.context.chunks = span
        reply = await chat.say(prompt, max_tokens=self.max_memory_tokens)
        memory.replace(reply.text, reply.token_ids, label)

    async def _ask(
        self, questions: dict[int, Question], chats: Chats, memory: TextMemory
    ) -> dict[int, str]:
        # Another model's tokens mean nothing to this one: it is given the text.
        same = tokenizer_of(chats, "answer") is tokenizer_of(chats, "memory")
        shown = _shown(memory) if same else memory.text or NO_MEMORY

        answer = self.prompts.text("answer")

        def prompt(_i: int, question: Question) -> Message:
            return fill(answer, problem=question.text, memory=shown)

        return await ask(chats, questions, prompt, self.max_answer_tokens)

    def windows(self, task: Task, tokenizer: Tokenizer) -> Iterator[Window]:
        """Yield the steps of the fold."""
        return windows(task, tokenizer, self.chunk_size, self.max_chunks)


def _shown(memory: TextMemory) -> Part:
    return memory.token_ids or memory.text or NO_MEMORY

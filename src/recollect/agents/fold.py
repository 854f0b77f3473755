"""Fold: read chunk by chunk, rewrite one text memory each time, answer from it (MemAgent's loop).

Each chunk and each question is a context of its own, so nothing but the memory is carried along.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from recollect.chat import Chats
from recollect.concurrency import concurrently
from recollect.errors import UserError
from recollect.memory.text import TextMemory
from recollect.rendering import Message, Part, Tokenizer, user
from recollect.types import Question, Task

NO_MEMORY = "No previous memory"

_FIELD = re.compile(r"\{(problem|memory|chunk)\}")


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
        "You have read a long text and kept a memory of it. Solve the problem from the memory and"
        " put the answer in \\boxed{}.\n\n<problem>\n{problem}\n</problem>\n\n"
        "<memory>\n{memory}\n</memory>\n\nYour answer:"
    )
    unknown_problem: str = "Questions about anything in the text will be asked when it has ended."
    """Stands for the problem where the memory is written without knowing it."""

    def __post_init__(self) -> None:
        needed = {
            "chunk_first": {"chunk", "memory"},
            "memory_first": {"chunk", "memory"},
            "answer": {"problem", "memory"},
        }
        for name, fields in needed.items():
            found = set(_FIELD.findall(getattr(self, name)))
            if not fields <= found <= fields | {"problem"}:
                raise UserError(
                    f"the prompt {name} shows {_braced(found)}, but needs {_braced(fields)}",
                    f"set --agent.prompts.{name.replace('_', '-')} to a text with these fields",
                )


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

    def __post_init__(self) -> None:
        for name in ("chunk_size", "max_memory_tokens", "max_answer_tokens", "max_chunks"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(
                    f"{name} is {value}", f"set --agent.{name.replace('_', '-')} to 1 or more"
                )
        if self.order not in ("chunk_first", "memory_first"):
            raise UserError(f"order is {self.order!r}", "choose from chunk_first, memory_first")

    def check_window(self, window: int) -> None:
        """Refuse settings that cannot fit a model's window."""
        if self.chunk_size is None:
            return
        # The old memory and the new one; the texts around them and the problem take some more.
        rest = 2 * self.max_memory_tokens + 256
        if self.chunk_size + rest > window:
            fix = f"set --agent.chunk-size to at most {window - rest}"
            if rest >= window:
                third = (window - 256) // 3
                fix = f"set --agent.chunk-size and --agent.max-memory-tokens to at most {third}"
                if third < 1:
                    fix = "choose a model with a larger window"
            raise UserError(
                f"chunks of {self.chunk_size} tokens, with memories of {self.max_memory_tokens},"
                f" do not fit the model's window of {window}",
                fix,
            )

    def new_memory(self, task: Task) -> TextMemory:
        """Start with nothing written."""
        return TextMemory()

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        """Fold the chunks into the memory, asking each question at its position."""
        problem = "\n".join(q.text for q in task.questions)
        if not self.query_aware:
            problem = self.prompts.unknown_problem
        pending = dict(enumerate(task.questions))
        answers: dict[int, str] = {}
        tokenizer = _tokenizer(chats, "memory")
        number = 0
        for chunk, read in self.windows(task, tokenizer):
            if chunk:
                number += 1
                await self._update(problem, chunk, f"chunk {number}", chats, memory)
            due = {i: q for i, q in pending.items() if _is_due(q, read)}
            answers |= await self._ask(due, chats, memory)
            pending = {i: q for i, q in pending.items() if i not in due}
        answers |= await self._ask(pending, chats, memory)
        return [answers[i] for i in range(len(task.questions))]

    async def _update(
        self, problem: str, chunk: list[int], label: str, chats: Chats, memory: TextMemory
    ) -> None:
        template = getattr(self.prompts, self.order)
        prompt = _fill(template, problem=problem, chunk=chunk, memory=_shown(memory))
        chat = chats.open("memory", label=label)
        reply = await chat.say(prompt, max_tokens=self.max_memory_tokens)
        memory.replace(reply.text, reply.token_ids, label)

    async def _ask(
        self, questions: dict[int, Question], chats: Chats, memory: TextMemory
    ) -> dict[int, str]:
        # Another model's tokens mean nothing to this one: it is given the text.
        same = _tokenizer(chats, "answer") is _tokenizer(chats, "memory")
        shown = _shown(memory) if same else memory.text or NO_MEMORY

        async def ask(i: int, question: Question) -> str:
            # One memory serves many questions: question i is compared with question i of siblings.
            name = f"question {i + 1}"
            chat = chats.open("answer", label=name, stratum=name, question=i)
            prompt = _fill(self.prompts.answer, problem=question.text, memory=shown)
            return (await chat.say(prompt, max_tokens=self.max_answer_tokens)).text

        texts = await concurrently(ask(i, q) for i, q in questions.items())
        return dict(zip(questions, texts, strict=True))

    def windows(self, task: Task, tokenizer: Tokenizer) -> Iterator[tuple[list[int], int]]:
        """Yield, for every step of the fold, its tokens and the last task chunk read to its end.

        A window ends where a question is asked, so that none is answered from later text; it may be
        empty. A chunk that `max_chunks` leaves out counts as read where it would have stood.
        """
        if self.chunk_size is None:
            yield from self._own_chunks(task, tokenizer)
            return
        pieces: Iterable[tuple[list[int], int]] = (
            (tokenizer.encode("\n\n" + text if i else text), i)
            for i, text in enumerate(task.chunks)
        )
        if self.max_chunks is not None:
            pieces = cut_centre(pieces, self.max_chunks * self.chunk_size)
        asked = {q.position for q in task.questions if q.position is not None}
        held: list[int] = []
        read = -1
        for ids, i in pieces:
            if not asked.isdisjoint(range(read, i)):
                yield held, i - 1
                held = []
            held += ids
            full = len(held) // self.chunk_size * self.chunk_size
            for at in range(0, full, self.chunk_size):
                yield held[at : at + self.chunk_size], i - 1
            held = held[full:]
            read = i
        if held:
            yield held, len(task.chunks) - 1

    def _own_chunks(self, task: Task, tokenizer: Tokenizer) -> Iterator[tuple[list[int], int]]:
        """Yield the task's chunks as they are, without the middle ones if there are too many."""
        count = len(task.chunks)
        limit = count if self.max_chunks is None else min(count, self.max_chunks)
        kept = [*range(limit - limit // 2), *range(count - limit // 2, count)]
        for i, following in pairwise([*kept, count]):
            yield tokenizer.encode(task.chunks[i]), following - 1


def cut_centre(
    pieces: Iterable[tuple[list[int], int]], limit: int
) -> Iterator[tuple[list[int], int]]:
    """Pass on the first and the last half of `limit` tokens, holding no more than that half."""
    head, tail_limit = limit - limit // 2, limit // 2
    tail: deque[tuple[list[int], int]] = deque()
    held = 0
    for ids, i in pieces:
        if head:
            yield ids[:head], i
            ids, head = ids[head:], max(0, head - len(ids))
        if not ids or not tail_limit:
            continue
        tail.append((ids, i))
        held += len(ids)
        while held - len(tail[0][0]) >= tail_limit:
            held -= len(tail.popleft()[0])
        if held > tail_limit:
            first, j = tail[0]
            tail[0] = (first[held - tail_limit :], j)
            held = tail_limit
    yield from tail


def _tokenizer(chats: Chats, role: str) -> Tokenizer:
    return chats.model(role).renderer.tokenizer


def _braced(names: set[str]) -> str:
    return " and ".join("{" + name + "}" for name in sorted(names)) or "no field"


def _is_due(question: Question, read: int) -> bool:
    return question.position is not None and question.position <= read


def _shown(memory: TextMemory) -> Part:
    return memory.token_ids or memory.text or NO_MEMORY


def _fill(template: str, **fields: Part) -> Message:
    """Put the given parts, text or tokens, where the template names them."""
    pieces = _FIELD.split(template)  # text and field names in turn
    parts: list[Part] = [fields[p] if i % 2 else p for i, p in enumerate(pieces)]
    return user(*(part for part in parts if len(part)))

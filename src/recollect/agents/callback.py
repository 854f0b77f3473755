"""Callback: a fold that may look back at what its memory once said (ReMemR1's loop).

With every new memory the model may name a query. The earlier memory that fits it best is shown
beside the present one at the next step, whether that reads a chunk or answers a question.
"""

from __future__ import annotations

from dataclasses import dataclass

from recollect.agents.estimates import (
    Lengths,
    Work,
    check_chunks,
    reading_work,
    text_lengths,
)
from recollect.agents.fold import NO_MEMORY
from recollect.agents.reading import (
    Span,
    ask,
    known_problem,
    read_and_ask,
    spans,
    tokenizer_of,
    windows,
)
from recollect.agents.tags import part, spoken
from recollect.agents.templates import check_fields, fill, solve_from
from recollect.bounds import FROM_1, check_bounds
from recollect.chat.chat import Chats
from recollect.chat.rendering import Tokenizer
from recollect.memory.history import HistoryMemory
from recollect.types import Question, Task

NOTHING_RECALLED = "Nothing was brought back"


@dataclass(frozen=True)
class CallbackPrompts:
    """Texts with the fields {problem}, {memory}, {recalled} and {chunk}."""

    read: str = (
        "You are reading a long text one section at a time, to solve a problem later. Here are the"
        " problem, the next section, your memory of the sections before it, and an earlier memory"
        " that you asked for.\n\n"
        "<problem>\n{problem}\n</problem>\n\n<section>\n{chunk}\n</section>\n\n"
        "<memory>\n{memory}\n</memory>\n\n<recalled>\n{recalled}\n</recalled>\n\n"
        "Write the new memory between <update> and </update>: add what the section and the recalled"
        " memory say that helps with the problem, and keep everything that still matters. If"
        " something you once noted is missing from it, name what it was about between <recall> and"
        " </recall>: the earlier memory that fits best will be shown to you next."
    )
    answer: str = (
        f"You have read a long text and kept a memory of it. {solve_from('the memory')}"
        "\n\n<problem>\n{problem}\n</problem>\n\n<memory>\n{memory}\n</memory>\n\n"
        "<recalled>\n{recalled}\n</recalled>\n\nYour answer:"
    )

    def __post_init__(self) -> None:
        check_fields("read", self.read, {"chunk", "memory", "recalled"}, {"problem"})
        check_fields("answer", self.answer, {"problem", "memory", "recalled"})


@dataclass(frozen=True)
class Written:
    """What a reply says."""

    memory: str | None
    """None leaves it as it is."""
    query: str
    """Empty if nothing is to be brought back."""
    malformed: bool


def parse_written(reply: str) -> Written:
    """Read the new memory and the query of a reply.

    Well-formed is an <update> that is closed; <recall> after it may be missing or empty. A memory
    cut off by the limit is kept as far as it goes, and a reply without tags is all memory, unless
    there is nothing in it.
    """
    update = part(spoken(reply), "update", until="<recall>")
    if update.text is None:
        return Written(update.rest.strip() or None, "", True)
    query = part(update.rest, "recall")
    return Written(update.text, query.text or "", not update.closed)


@dataclass(frozen=True)
class CallbackAgent:
    """memory, query := policy(problem, chunk, memory, recalled); recalled := history[query]."""

    chunk_size: int | None = 5000
    """Tokens per chunk; None takes the task's own chunks as they are."""
    max_memory_tokens: int = 1024
    """Limit of one reply, including its tags and its query."""
    max_answer_tokens: int = 1024
    max_chunks: int | None = None
    """Longer texts lose their middle: the first and the last half of this many chunks are read."""
    prompts: CallbackPrompts = CallbackPrompts()

    def __post_init__(self) -> None:
        names = ("chunk_size", "max_memory_tokens", "max_answer_tokens", "max_chunks")
        check_bounds("agent", self, **dict.fromkeys(names, FROM_1))

    def lengths(self, window: int | None) -> Lengths:
        """Bound the contexts: a chunk, the problem and two memories."""
        shown = self.chunk_size and self.chunk_size + 2 * self.max_memory_tokens
        return text_lengths(shown, self.max_memory_tokens, self.max_answer_tokens, window)

    def work(self, task: Task, tokenizer: Tokenizer, window: int) -> Work:
        """Add up one episode; an earlier memory may be shown beside the present one."""
        sizes = [len(ids) for ids, _ in windows(task, tokenizer, self.chunk_size, self.max_chunks)]
        limits = (self.max_memory_tokens, self.max_answer_tokens)
        return reading_work(sizes, len(task.questions), *limits, memories=2)

    def check_window(self, window: int) -> None:
        """Refuse settings that cannot fit a model's window."""
        # Two memories are shown, and one is written.
        check_chunks(self.chunk_size, self.max_memory_tokens, 3, window)

    def new_memory(self, task: Task) -> HistoryMemory:
        """Start with nothing written."""
        return HistoryMemory()

    async def run(self, task: Task, chats: Chats, memory: HistoryMemory) -> list[str]:
        """Fold the chunks into the memory, asking each question at its position."""
        problem = known_problem(task)
        steps = spans(task, tokenizer_of(chats, "memory"), self.chunk_size, self.max_chunks)

        async def read(chunk: list[int], span: Span, label: str) -> None:
            await self._read(problem, chunk, span, label, chats, memory)

        return await read_and_ask(task, steps, read, lambda due: self._ask(due, chats, memory))

    async def _read(
        self,
        problem: str,
        chunk: list[int],
        span: Span,
        label: str,
        chats: Chats,
        memory: HistoryMemory,
    ) -> None:
        chat = chats.open("memory", label=label)
        chat.context.chunks = span
        prompt = fill(self.prompts.read, problem=problem, chunk=chunk, **_shown(memory))
        reply = await chat.say(prompt, max_tokens=self.max_memory_tokens)
        written = parse_written(reply.text)
        memory.replace(memory.text if written.memory is None else written.memory, label=label)
        if written.query or memory.recalled:  # without a query: what was brought back goes again
            memory.recall(written.query, label)
        chat.context.counts = {
            "queries": int(bool(written.query)),
            "recalled": int(bool(memory.recalled)),
            "malformed": int(written.malformed),
        }

    async def _ask(
        self, questions: dict[int, Question], chats: Chats, memory: HistoryMemory
    ) -> dict[int, str]:
        shown = _shown(memory)
        return await ask(
            chats,
            questions,
            lambda _i, question: fill(self.prompts.answer, problem=question.text, **shown),
            self.max_answer_tokens,
        )


def _shown(memory: HistoryMemory) -> dict[str, str]:
    return {
        "memory": memory.text or NO_MEMORY,
        "recalled": memory.recalled or NOTHING_RECALLED,
    }

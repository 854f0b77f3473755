"""Rolling state: one inner state that is thought and memory at once, rewritten after every chunk.

MEM1's way of reading. Like a fold it keeps a bounded context, but what it carries on is its own
reasoning between tags: what it knows, what that means for the problem, what is still missing. The
state is consolidated and the rest of the chat forgotten.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from recollect.agents.estimates import check_chunks
from recollect.agents.reading import (
    PROBLEM,
    Ask,
    Span,
    ask,
    known_problem,
    read_and_ask,
    spans,
    tokenizer_of,
    unasked,
)
from recollect.agents.templates import fill, solve_from
from recollect.bounds import FROM_1, check_bounds
from recollect.chat.chat import Chat, Chats, Reply
from recollect.chat.rendering import Part
from recollect.memory.text import TextMemory
from recollect.types import Question, Task

UPDATE = (
    "You are working on a problem while a long text arrives section by section. You keep one inner"
    " state. It is all that you will have when the next section comes: this section and anything"
    " else you say are forgotten.\n\n"
    "<problem>\n{problem}\n</problem>\n\n<section>\n{chunk}\n</section>\n\n"
    "Your state so far:\n{memory}\n\n"
    "Write the new state between <state> and </state>: the facts to keep, from the old state and"
    " from the section; what they mean for the problem; and what is still missing."
)
ANSWER = (
    "You have read a long text and kept an inner state while doing so.\n\n{memory}\n\n"
    f"{solve_from('the state')}\n\n{PROBLEM}"
)
FIRST_STATE = "<state>\nNothing read yet.\n</state>"

_WHOLE = re.compile(r"\s*<state>.*</state>\s*", re.DOTALL)
_STATE = re.compile(r"<state>(.*?)(?:</state>|\Z)", re.DOTALL)


@dataclass(frozen=True)
class RollingAgent:
    """state := policy(problem, chunk, state) for every chunk; then answer from the state."""

    chunk_size: int | None = 5000
    """Tokens per chunk; None takes the task's own chunks as they are."""
    max_state_tokens: int = 1024
    max_answer_tokens: int = 1024

    def __post_init__(self) -> None:
        names = ("chunk_size", "max_state_tokens", "max_answer_tokens")
        check_bounds("agent", self, **dict.fromkeys(names, FROM_1))

    def check_window(self, window: int) -> None:
        """Refuse settings that cannot fit a model's window."""
        check_chunks(self.chunk_size, self.max_state_tokens, 2, window, "state")

    def new_memory(self, task: Task) -> TextMemory:
        """Start with nothing thought."""
        return TextMemory()

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        """Carry the state through the chunks, asking each question at its position."""
        return await self._carry(task, chats, memory, lambda due: self._ask(due, chats, memory))

    async def read(self, task: Task, chats: Chats, memory: TextMemory) -> None:
        """Carry the state through the chunks, answering nothing."""
        await self._carry(task, chats, memory, unasked)

    async def _carry(self, task: Task, chats: Chats, memory: TextMemory, asks: Ask) -> list[str]:
        problem = known_problem(task)
        steps = spans(task, tokenizer_of(chats, "memory"), self.chunk_size)

        async def read(chunk: list[int], span: Span, label: str) -> None:
            chat = chats.open("memory", label=label)
            chat.context.chunks = span
            await self._consolidate(problem, chunk, chat, memory)

        return await read_and_ask(task, steps, read, asks)

    async def _consolidate(
        self, problem: str, chunk: list[int], chat: Chat, memory: TextMemory
    ) -> None:
        prompt = fill(UPDATE, problem=problem, chunk=chunk, memory=_shown(memory))
        reply = await chat.say(prompt, max_tokens=self.max_state_tokens)
        chat.context.counts["untagged"] = int(not _STATE.search(reply.text))
        keep(memory, reply, chat.context.label)

    async def _ask(
        self, questions: dict[int, Question], chats: Chats, memory: TextMemory
    ) -> dict[int, str]:
        # Another model's tokens mean nothing to this one: it is given the text.
        same = tokenizer_of(chats, "answer") is tokenizer_of(chats, "memory")
        state = _shown(memory) if same else memory.text or FIRST_STATE
        return await ask(
            chats,
            questions,
            lambda _i, question: fill(ANSWER, problem=question.text, memory=state),
            self.max_answer_tokens,
        )


def keep(memory: TextMemory, reply: Reply, label: str) -> None:
    """Keep the state of a reply: token for token where it is all of it, else as its text.

    A model that writes no tags has its whole reply taken for the state.
    """
    states = _STATE.findall(reply.text)
    text = f"<state>\n{(states[-1] if states else reply.text).strip()}\n</state>"
    if len(states) == 1 and _WHOLE.fullmatch(reply.text):
        memory.replace(reply.text, reply.token_ids, label)
    else:
        memory.replace(text, (), label)


def _shown(memory: TextMemory) -> Part:
    return memory.token_ids or memory.text or FIRST_STATE

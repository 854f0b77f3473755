"""Parallel: read all chunks at once, keep the notes of those that matter, merge them; repeat.

PI-Mem's loop: the next round reads again with the merged memory in view, which finds what only
makes sense once the first facts are known. Rounds end when none finds anything new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.agents.estimates import Lengths, Work, text_lengths
from recollect.agents.fold import NO_MEMORY
from recollect.agents.parallel_prompts import ParallelPrompts, parse_note
from recollect.agents.reading import (
    Span,
    ask,
    is_due,
    known_problem,
    spans,
    tokenizer_of,
    windows,
)
from recollect.agents.templates import fill
from recollect.bounds import FROM_1, check_bounds
from recollect.chat.chat import Chat, Chats, Reply
from recollect.chat.rendering import Message, Part, Tokenizer
from recollect.concurrency.many import concurrently
from recollect.errors import UserError
from recollect.memory.text import TextMemory
from recollect.types import Question, Task


@dataclass(frozen=True)
class ParallelAgent:
    """Up to max_rounds times: notes := read(problem, chunk, memory) for all chunks; then merge."""

    chunk_size: int | None = 5000
    """Tokens per chunk; None takes the task's own chunks as they are."""
    max_note_tokens: int = 256
    """Limit of a reader's reply, including its tags."""
    max_memory_tokens: int = 1024
    max_answer_tokens: int = 1024
    max_chunks: int | None = None
    """Longer texts lose their middle: the first and the last half of this many chunks are read."""
    max_rounds: int = 3
    fan_in: int = 16
    """Notes that are merged at once; more are merged in groups first, all groups at once."""
    prompts: ParallelPrompts = ParallelPrompts()

    def __post_init__(self) -> None:
        limits = ("chunk_size", "max_note_tokens", "max_memory_tokens", "max_answer_tokens")
        names = (*limits, "max_chunks", "max_rounds")
        check_bounds("agent", self, **dict.fromkeys(names, FROM_1))
        if self.fan_in < 2:
            raise UserError(f"fan_in is {self.fan_in}", "set --agent.fan-in to 2 or more")

    def lengths(self, window: int | None) -> Lengths:
        """Bound the contexts: a chunk or the notes that are merged at once, and the memory."""
        shown = self.chunk_size
        if shown is not None:  # a number is shown before every note
            shown = max(shown, self.fan_in * (self.max_note_tokens + 8)) + self.max_memory_tokens
        return text_lengths(shown, self.max_memory_tokens, self.max_answer_tokens, window)

    def work(self, task: Task, tokenizer: Tokenizer, window: int) -> Work:
        """Add up one episode; every round may read all and keep all."""
        sizes = [len(ids) for ids, _ in windows(task, tokenizer, self.chunk_size, self.max_chunks)]
        questions, rounds = len(task.questions), self.max_rounds if sizes else 0
        groups, left = 0, len(sizes)
        while left > self.fan_in:
            left = -(-left // self.fan_in)
            groups += left
        notes = (len(sizes) + groups) * self.max_note_tokens
        chats, memory = len(sizes) + groups + 1, self.max_memory_tokens
        return Work(
            rounds * chats + questions,
            rounds * (sum(sizes) + chats * memory + notes) + questions * memory,
            rounds * sum(sizes),
            rounds * (notes + memory) + questions * self.max_answer_tokens,
        )

    def check_window(self, window: int) -> None:
        """Refuse settings that cannot fit a model's window."""
        reading = (self.chunk_size or 0) + self.max_note_tokens + self.max_memory_tokens + 256
        merging = self.fan_in * (self.max_note_tokens + 8) + 2 * self.max_memory_tokens + 256
        if max(reading, merging) > window:
            raise UserError(
                f"reading takes up to {reading} tokens and merging {merging}, which do not fit the"
                f" model's window of {window}",
                "set --agent.chunk-size, --agent.max-memory-tokens, --agent.fan-in or"
                " --agent.max-note-tokens lower",
            )

    def new_memory(self, task: Task) -> TextMemory:
        """Start with nothing written."""
        return TextMemory()

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        """Read the text before each question, then ask it; the memory is kept for what follows."""
        reading = _Reading(self, known_problem(task), chats, memory)
        pending = dict(enumerate(task.questions))
        answers: dict[int, str] = {}
        unread: list[tuple[list[int], Span]] = []
        tokenizer = tokenizer_of(chats, "memory")
        for (chunk, read), span in spans(task, tokenizer, self.chunk_size, self.max_chunks):
            unread += [(chunk, span)] if chunk else []
            due = {i: q for i, q in pending.items() if is_due(q, read)}
            if due:
                await reading.rounds(unread)
                unread = []
                answers |= await self._ask(due, chats, memory)
                pending = {i: q for i, q in pending.items() if i not in due}
        if pending:
            await reading.rounds(unread)
        answers |= await self._ask(pending, chats, memory)
        return [answers[i] for i in range(len(task.questions))]

    async def _ask(
        self, questions: dict[int, Question], chats: Chats, memory: TextMemory
    ) -> dict[int, str]:
        # Another model's tokens mean nothing to this one: it is given the text.
        same = tokenizer_of(chats, "answer") is tokenizer_of(chats, "memory")
        shown = _shown(memory) if same else memory.text or NO_MEMORY
        return await ask(
            chats,
            questions,
            lambda _i, question: fill(self.prompts.answer, problem=question.text, memory=shown),
            self.max_answer_tokens,
        )


@dataclass
class _Reading:
    """The rounds of one episode."""

    agent: ParallelAgent
    problem: str
    chats: Chats
    memory: TextMemory
    done: int = 0
    """Rounds so far, of all stretches of text."""

    async def rounds(self, sections: Sequence[tuple[list[int], Span]]) -> None:
        """Read a stretch of text until a round finds nothing new."""
        for k in range(self.agent.max_rounds if sections else 0):
            self.done += 1
            notes = await self._read(sections, first=k == 0)
            if not notes:
                break
            await self._merge(notes)

    async def _read(self, sections: Sequence[tuple[list[int], Span]], first: bool) -> list[str]:
        """Let every section be read at once; return the notes worth keeping, in order."""
        chats = [self._open(f"chunk {i + 1}") for i in range(len(sections))]
        for chat, (_ids, span) in zip(chats, sections, strict=True):
            chat.context.chunks = span
        shown, agent = _shown(self.memory), self.agent
        prompts = [
            fill(agent.prompts.read, problem=self.problem, chunk=ids, memory=shown)
            for ids, _span in sections
        ]
        replies = await _said(chats, prompts, agent.max_note_tokens)
        noted = [parse_note(reply.text) for reply in replies]
        for chat, own in zip(chats, noted, strict=True):
            counts = {"kept": int(own.note is not None), "malformed": int(own.malformed)}
            chat.context.counts = counts
        # Once a round and once a stretch of text, so that the sums say how many there were.
        chats[0].context.counts |= {"rounds": 1, "stretches": int(first)}
        return [own.note for own in noted if own.note is not None]

    async def _merge(self, notes: list[str]) -> None:
        """Merge notes into the memory: in groups, level by level, while they are too many."""
        agent, level = self.agent, 0
        while len(notes) > agent.fan_in:
            level += 1
            groups = [notes[at : at + agent.fan_in] for at in range(0, len(notes), agent.fan_in)]
            chats = [self._open(f"merge {level}.{i + 1}") for i in range(len(groups))]
            prompts = [self._merged(group) for group in groups]
            replies = await _said(chats, prompts, agent.max_note_tokens)
            notes = [reply.text for reply in replies]
        chat = self._open("merge")
        [reply] = await _said([chat], [self._merged(notes)], agent.max_memory_tokens)
        self.memory.replace(reply.text, reply.token_ids, chat.context.label)

    def _merged(self, notes: Sequence[str]) -> Message:
        listed = "\n".join(f"[{i + 1}] {note}" for i, note in enumerate(notes))
        shown = _shown(self.memory)
        return fill(self.agent.prompts.merge, problem=self.problem, notes=listed, memory=shown)

    def _open(self, name: str) -> Chat:
        return self.chats.open("memory", label=f"round {self.done} {name}")


async def _said(chats: Sequence[Chat], prompts: Sequence[Message], limit: int) -> list[Reply]:
    """Let all speak at once. Seeds go by the order in which chats were opened, not of replies."""
    return await concurrently(
        chat.say(prompt, max_tokens=limit) for chat, prompt in zip(chats, prompts, strict=True)
    )


def _shown(memory: TextMemory) -> Part:
    return memory.token_ids or memory.text or NO_MEMORY

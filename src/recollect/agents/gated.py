"""Gated: a fold that may leave its memory as it is, and may stop reading (GRU-Mem's gates).

At every chunk the model says whether the chunk matters (the update gate), what the memory should
then be, and whether it has seen enough (the exit gate). What it does not read costs nothing.
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
from recollect.agents.fold import NO_MEMORY, FoldPrompts
from recollect.agents.reading import (
    Ask,
    Span,
    ask,
    known_problem,
    read_and_ask,
    spans,
    tokenizer_of,
    unasked,
    windows,
)
from recollect.agents.tags import choice, part, spoken
from recollect.agents.templates import check_fields, fill
from recollect.bounds import FROM_1, check_bounds
from recollect.chat.chat import Chats
from recollect.chat.rendering import Tokenizer
from recollect.memory.text import TextMemory
from recollect.types import Question, Task

_SHOWN = (
    "You are reading a long text one section at a time, to solve a problem later. Here are the"
    " problem, the next section, and your memory of the sections before it.\n\n"
    "<problem>\n{problem}\n</problem>\n\n<section>\n{chunk}\n</section>\n\n"
    "<memory>\n{memory}\n</memory>\n\n"
)
_PARTS = (
    "Reply in three parts. First <check>yes</check> if the section says anything that helps"
    " with the problem and is not in the memory yet, else <check>no</check>. Then {update} between"
    " <update> and </update>; leave that empty after a no, and the memory stays as it is. Last"
    " <next>end</next> if the memory now holds all that the problem needs, so that no more has to"
    " be read, else <next>continue</next>."
)
_NO_EXIT = (
    "Reply <check>no</check> if the section says nothing that helps with the problem and is not in"
    " the memory yet. Else reply <check>yes</check>, then {update} between <update> and </update>."
)
_WHOLE = "the whole new memory"
_LINES = "each line of the memory that changes, as name: value,"


def default_read(exit_gate: bool, lines: bool) -> str:
    """Return the text that asks for what an agent reads from replies, and for no more."""
    update = _LINES if lines else _WHOLE
    return _SHOWN + (_PARTS if exit_gate else _NO_EXIT).replace("{update}", update)


@dataclass(frozen=True)
class GatedPrompts:
    """Texts with the fields {problem}, {memory} and {chunk}."""

    read: str = default_read(exit_gate=True, lines=False)
    """This default follows the agent's exit_gate and lines; a text of one's own stays."""
    answer: str = FoldPrompts.answer

    def __post_init__(self) -> None:
        check_fields("read", self.read, {"chunk", "memory"}, {"problem"})
        check_fields("answer", self.answer, {"problem", "memory"})


@dataclass(frozen=True)
class Gates:
    """What a reply decides."""

    update: str | None
    """The new memory; None leaves it as it is."""
    end: bool
    malformed: bool


def parse_gates(reply: str, exit_gate: bool = True) -> Gates:
    """Read both gates from a reply; what cannot be read changes nothing and reads on.

    Well-formed are <check>yes|no</check>, after a yes an <update> that is closed and not empty, and
    with an exit gate <next>continue|end</next>; other words around them do not matter. Of anything
    else each part counts that can be read: a memory cut off by the limit is kept as far as it goes.
    """
    check = choice(spoken(reply), "check", ("yes", "no"))
    if check.text is None:
        return Gates(None, False, True)
    update = part(check.rest, "update", until="<next>")
    following = choice(update.rest, "next", ("continue", "end"))
    written = update.text or None if check.text == "yes" else None
    whole = update.closed and written is not None if check.text == "yes" else True
    unread = exit_gate and following.text is None
    return Gates(written, exit_gate and following.text == "end", not whole or unread)


def with_lines(memory: str, new: str, tokenizer: Tokenizer, limit: int) -> str:
    """Put lines into a memory, and drop the oldest until it fits."""
    changed = {_key(line): line.strip() for line in new.splitlines() if line.strip()}
    lines = [line for line in memory.splitlines() if _key(line) not in changed]
    lines += changed.values()  # at the end: what is read last was written last
    while len(lines) > 1 and len(tokenizer.encode("\n".join(lines))) > limit:
        del lines[0]
    return "\n".join(lines)


def _key(line: str) -> str:
    return line.partition(": ")[0].strip()


@dataclass(frozen=True)
class GatedAgent:
    """Keep or rewrite the memory at every chunk, continue or stop; then answer from the memory."""

    chunk_size: int | None = 5000
    """Tokens per chunk; None takes the task's own chunks as they are."""
    max_memory_tokens: int = 1024
    """Limit of one reply, including its tags."""
    max_answer_tokens: int = 1024
    max_chunks: int | None = None
    """Longer texts lose their middle: the first and the last half of this many chunks are read."""
    exit_gate: bool = True
    """Whether the model may stop; without it every chunk is read."""
    lines: bool = False
    """Whether an update holds only the lines that change: each replaces the one with the same words
    before its colon, and is put last. Where max_memory_tokens do not hold them all, the lines that
    were written longest ago are dropped. Of an update that was cut off, the last line is."""
    prompts: GatedPrompts = GatedPrompts()

    def __post_init__(self) -> None:
        names = ("chunk_size", "max_memory_tokens", "max_answer_tokens", "max_chunks")
        check_bounds("agent", self, **dict.fromkeys(names, FROM_1))

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
        """Refuse settings that cannot fit a model's window."""
        check_chunks(self.chunk_size, self.max_memory_tokens, 2, window)

    def new_memory(self, task: Task) -> TextMemory:
        """Start with nothing written."""
        return TextMemory()

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        """Read until the model has enough, asking each question at its position.

        Questions that are left when reading ends are answered from the memory as it then is.
        """
        return await self._go(task, chats, memory, lambda due: self._ask(due, chats, memory))

    async def read(self, task: Task, chats: Chats, memory: TextMemory) -> None:
        """Read until the model has enough, answering nothing."""
        await self._go(task, chats, memory, unasked)

    async def _go(self, task: Task, chats: Chats, memory: TextMemory, asks: Ask) -> list[str]:
        problem = known_problem(task)
        steps = spans(task, tokenizer_of(chats, "memory"), self.chunk_size, self.max_chunks)

        async def read(chunk: list[int], span: Span, label: str) -> bool:
            return await self._read(problem, chunk, span, label, chats, memory)

        return await read_and_ask(task, steps, read, asks)

    async def _read(
        self,
        problem: str,
        chunk: list[int],
        span: Span,
        label: str,
        chats: Chats,
        memory: TextMemory,
    ) -> bool:
        """Read a chunk; tell whether it was the last one to be read."""
        chat = chats.open("memory", label=label)
        chat.context.chunks = span
        shown = memory.text or NO_MEMORY
        text = self.prompts.read
        if text == GatedPrompts.read:
            text = default_read(self.exit_gate, self.lines)
        prompt = fill(text, problem=problem, chunk=chunk, memory=shown)
        reply = await chat.say(prompt, max_tokens=self.max_memory_tokens)
        gates = parse_gates(reply.text, self.exit_gate)
        chat.context.counts = {
            "updated": int(gates.update is not None),
            "ended": int(gates.end),
            "malformed": int(gates.malformed),
        }
        if gates.update is not None:
            new = gates.update
            if self.lines:
                if gates.malformed and "</update>" not in reply.text:
                    new = new.rpartition("\n")[0]
                tokenizer = tokenizer_of(chats, "memory")
                new = with_lines(memory.text, new, tokenizer, self.max_memory_tokens)
            memory.replace(new, label=label)
        return gates.end

    async def _ask(
        self, questions: dict[int, Question], chats: Chats, memory: TextMemory
    ) -> dict[int, str]:
        shown = memory.text or NO_MEMORY
        return await ask(
            chats,
            questions,
            lambda _i, question: fill(self.prompts.answer, problem=question.text, memory=shown),
            self.max_answer_tokens,
        )

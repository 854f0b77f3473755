"""Recursive: the text is a variable, and the model reads it with programs that may ask the model.

A question is a chat in role `answer` in which every reply is a program. `ask` opens a chat in role
`memory` that reads one part, or, if that is too long and depth is left, writes programs over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from recollect.agents.estimates import USUAL, Lengths, Work
from recollect.agents.reading import tokenizer_of
from recollect.agents.recursive_prompts import RecursivePrompts, in_box, program_of
from recollect.agents.templates import fill
from recollect.bounds import FROM_1, check_bounds
from recollect.chat.chat import Chat, Chats, Reply
from recollect.chat.rendering import Message, Part, Tokenizer, user
from recollect.concurrency.many import concurrently
from recollect.errors import UserError
from recollect.memory.passages import WordIndex
from recollect.memory.text import TextMemory
from recollect.metrics import normalise
from recollect.programs.budget import Limits, ProgramError
from recollect.programs.host import Asked, Host
from recollect.programs.session import Result, Session
from recollect.types import Question, Task

NO_PROGRAM = "there is no program: write one between ``` and ```"


@dataclass(frozen=True)
class RecursiveAgent:
    """Write programs over the text, ask the same model about parts of it, answer in a program."""

    sees_answers: ClassVar[bool] = True
    """Only to count which parts hold one."""
    max_turns: int = 8
    """Programs that a chat writes."""
    max_turn_tokens: int = 512
    max_result_chars: int = 2000
    """Characters of a program's result that are shown."""
    max_part_tokens: int = 2048
    """Tokens of a part that is read at once; a longer one needs depth."""
    max_answer_tokens: int = 256
    """Limit of what is said about a part."""
    max_asks: int = 32
    """Parts that are read for one question, at all depths together."""
    max_depth: int = 1
    """1: parts are only read; 2: programs are written over long parts, too; and so on."""
    fresh_turns: bool = False
    """Whether every turn is a context of its own that shows the programs before it: then it is a
    sample of its own and has step rewards and advantages of its own."""
    program: Limits = Limits()
    prompts: RecursivePrompts = RecursivePrompts()

    def __post_init__(self) -> None:
        names = (
            *("max_turns", "max_turn_tokens", "max_result_chars", "max_part_tokens"),
            *("max_answer_tokens", "max_asks", "max_depth"),
        )
        check_bounds("agent", self, **dict.fromkeys(names, FROM_1))

    def lengths(self, window: int | None) -> Lengths:
        """Bound the contexts by their turns."""
        turns = self.max_turns * (self.max_turn_tokens + self.max_result_chars)
        context = min(window or USUAL, turns + self.max_part_tokens + 2048)
        return Lengths(context, context, context)

    def work(self, task: Task, tokenizer: Tokenizer, window: int) -> Work:
        """Add up one episode: every program and every part that may be read."""
        questions = len(task.questions)
        programs = self.max_turns * (self.max_turn_tokens + self.max_result_chars // 4)
        parts = self.max_asks * (self.max_part_tokens + self.max_answer_tokens)
        sampled = self.max_turns * self.max_turn_tokens + self.max_asks * self.max_answer_tokens
        contexts = questions * (1 + self.max_asks)
        return Work(contexts, questions * (programs + parts), 0, questions * sampled)

    def check_window(self, window: int) -> None:
        """Refuse settings that cannot fit a model's window."""
        around = 64  # words of the prompts; the usual ones take some more
        if self.max_part_tokens + self.max_answer_tokens + around > window:
            raise UserError(
                f"parts of {self.max_part_tokens} tokens and answers of {self.max_answer_tokens} do"
                f" not fit the model's window of {window}",
                "set --agent.max-part-tokens or --agent.max-answer-tokens lower",
            )
        if self.max_turn_tokens + around > window:
            raise UserError(
                f"programs of {self.max_turn_tokens} tokens do not fit the model's window of"
                f" {window}",
                "set --agent.max-turn-tokens lower",
            )

    def new_memory(self, task: Task) -> TextMemory:
        """Start without notes."""
        return TextMemory()

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        """Answer one question after the other, in the order in which they are asked."""
        last = len(task.chunks) - 1
        order = sorted(range(len(task.questions)), key=lambda i: _position(task.questions[i], last))
        answers: dict[int, str] = {}
        shown, index = -2, WordIndex("")
        for i in order:
            question = task.questions[i]
            position = _position(question, last)
            if position != shown:
                chunks = list(task.chunks[j] for j in range(position + 1))
                shown, index = position, WordIndex("\n\n".join(chunks))
            solving = _Solving(self, chats, memory, i, question.answers)
            name = f"question {i + 1}"
            found = await solving.solve(index, chunks, question.text, "answer", name, name, 1)
            answers[i] = in_box(found)
        return [answers[i] for i in range(len(task.questions))]


def _position(question: Question, last: int) -> int:
    return last if question.position is None else min(question.position, last)


def _fits(text: str, most: int, tokenizer: Tokenizer) -> bool:
    """Tell whether a text has at most this many tokens; a very long one is not even counted."""
    return len(text) <= 16 * most and len(tokenizer.encode(text)) <= most


@dataclass
class _Solving:
    """One question of an episode: what is left for it, and its notes."""

    agent: RecursiveAgent
    chats: Chats
    memory: TextMemory
    question: int
    wanted: tuple[str, ...] = ()
    """The accepted answers: only counted in what is said about a part, for a reward."""
    asks: int = 0

    async def solve(
        self,
        index: WordIndex,
        chunks: Sequence[str],
        problem: str,
        role: str,
        label: str,
        stratum: str,
        depth: int,
    ) -> str:
        """Write programs over a text until one answers; no answer is an empty one."""
        agent = self.agent
        given = {"text": index.text, "chunks": list(chunks), "question": problem}
        limits = agent.program.over(len(index.text))
        session = Session(given, limits, lambda: self._host(index, role, depth))
        size = f"{len(index.text)} characters in {len(chunks)} chunks"
        opening = fill(agent.prompts.program, problem=problem, size=size)
        turns = _Turns(self, role, label, stratum, opening)
        number = 0

        async def ask(asked: Sequence[Asked]) -> list[str]:
            nonlocal number
            first, number = number + 1, number + len(asked)
            names = [f"{label} call {first + i}" for i in range(len(asked))]
            return await self._ask(asked, names, stratum, depth)

        for left in reversed(range(agent.max_turns)):
            reply = await turns.say()
            if reply is None:
                break
            source = program_of(reply.text)
            result = Result(error=NO_PROGRAM, malformed=True)
            if source is not None:
                result = await session.run(source, ask)
            self._noted(result, label)
            turns.count(result)
            if result.answer is not None:
                return result.answer
            turns.add(reply, result, left)
        turns.context_counts("unanswered", 1)
        return ""

    def _host(self, index: WordIndex, role: str, depth: int) -> Host:
        notes = [line for line in self.memory.text.split("\n") if line]

        def admit(text: str, question: str) -> None:
            tokenizer = tokenizer_of(self.chats, "memory")
            most = self.agent.max_part_tokens
            if depth >= self.agent.max_depth and not _fits(text, most, tokenizer):
                raise ProgramError(f"ask shows at most {most} tokens of text: split it first")
            if len(tokenizer.encode(question[:4000])) > max(64, most // 4):
                raise ProgramError("the question of an ask is too long")

        return Host(index.search, notes, admit, self.agent.max_asks - self.asks)

    async def _ask(
        self, asked: Sequence[Asked], names: Sequence[str], stratum: str, depth: int
    ) -> list[str]:
        """Read short parts side by side, then write programs over long ones, one by one.

        Seeds go by the order in which chats are opened, so that order is the program's.
        """
        self.asks += len(asked)
        agent, tokenizer = self.agent, tokenizer_of(self.chats, "memory")
        most = agent.max_part_tokens
        short = [_fits(text, most, tokenizer) for text, _question in asked]
        group = f"{stratum} part" if not stratum.endswith(" part") else stratum
        wanted = [i for i, is_short in enumerate(short) if is_short]
        opened = [(i, self._open("memory", names[i], group)) for i in wanted]
        replies = await concurrently(
            chat.say(
                fill(agent.prompts.part, chunk=asked[i][0] or " ", problem=asked[i][1] or " "),
                max_tokens=agent.max_answer_tokens,
            )
            for i, chat in opened
        )
        found = {
            i: reply.text.rpartition("</think>")[2].strip()
            for (i, _chat), reply in zip(opened, replies, strict=True)
        }
        for i, chat in opened:
            said = normalise(found[i])
            holds = any(normalise(answer) in said for answer in self.wanted if normalise(answer))
            chat.context.counts["useful"] = int(holds)
        for i, (text, question) in enumerate(asked):
            if not short[i]:
                index = WordIndex(text)
                found[i] = await self.solve(
                    index, text.split("\n\n"), question, "memory", names[i], group, depth + 1
                )
        return [found[i] for i in range(len(asked))]

    def _open(self, role: str, label: str, stratum: str) -> Chat:
        return self.chats.open(role, label=label, stratum=stratum, question=self.question)

    def _noted(self, result: Result, label: str) -> None:
        if result.notes:
            lines = [self.memory.text] if self.memory.text else []
            lines += [" ".join(note.split()) for note in result.notes]
            self.memory.replace("\n".join(lines), label=label)


@dataclass
class _Turns:
    """The turns of one chat, or of one chat each."""

    own: _Solving
    role: str
    label: str
    stratum: str
    opening: Message
    chats: list[Chat] = field(default_factory=list)
    said: list[Part] = field(default_factory=list)
    """The programs and results so far, where every turn has a chat of its own."""
    message: Message | None = None

    async def say(self) -> Reply | None:
        """Let the model write the next program; None if there is no room for one."""
        agent = self.own.agent
        if agent.fresh_turns or not self.chats:
            label = f"{self.label} turn {len(self.chats) + 1}" if agent.fresh_turns else self.label
            self.chats.append(self.own._open(self.role, label, self.stratum))
        chat = self.chats[-1]
        message = self.message or self.opening
        if chat.room - len(chat.render(message)) < min(16, agent.max_turn_tokens) and self.message:
            return None
        return await chat.say(message, max_tokens=agent.max_turn_tokens)

    def add(self, reply: Reply, result: Result, left: int) -> None:
        """Show a result; say when the next program is the last."""
        agent = self.own.agent
        text = result.text
        if len(text) > agent.max_result_chars:
            rest = len(text) - agent.max_result_chars
            text = f"{text[: agent.max_result_chars]}... ({rest} more characters)"
        note = agent.prompts.last if left == 1 else ""
        shown = fill(agent.prompts.result, result=text, left=note)
        if agent.fresh_turns:
            self.said += ["\n\n", list(reply.token_ids) or " ", "\n\n", *shown.parts]
            self.message = user(*self.opening.parts, *self.said)
        else:
            self.message = shown

    def count(self, result: Result) -> None:
        """Note in the context what became of a program."""
        for name, times in (
            ("programs", 1),
            ("malformed", int(result.malformed)),
            ("failed", int(bool(result.error) and not result.malformed)),
            ("asks", result.asks),
        ):
            self.context_counts(name, times)

    def context_counts(self, name: str, times: int) -> None:
        """Add to a count of the last chat."""
        if self.chats:
            counts = self.chats[-1].context.counts
            counts[name] = counts.get(name, 0) + times

"""Ways to answer questions about a conversation that outgrows the window, for compaction.py.

Each one shows the model messages that fit the same window, then the question. The endpoint is the
code that `recollect serve --agent fold` runs, without the HTTP around it.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.copying import stems
from recollect.agents.fold import NO_MEMORY, FoldAgent
from recollect.agents.templates import fill
from recollect.chat.chat import Chats
from recollect.chat.rendering import Message
from recollect.endpoint.folding import Folding
from recollect.endpoint.memories import Memories
from recollect.keeping.keeper import Keeper
from recollect.keeping.shelf import Shelf
from recollect.keeping.windows import Count, digest, pieces
from recollect.memory.passages import PassageIndex, packed
from recollect.memory.text import TextMemory
from recollect.types import Task

Shown = list[dict[str, Any]]
HEAD = "Answer the last message from the conversation, in a few words."
COMPACT = (
    "Here are the summary of a conversation so far and what was said since. The conversation is"
    " too long to be kept: it will be continued from your summary alone.\n\n"
    "<memory>\n{memory}\n</memory>\n\n<section>\n{chunk}\n</section>\n\n"
    "Summarise all of it: facts about the people, what they asked for, decided and plan, with"
    " names, numbers and dates. Reply with the summary only.\n\nSummary:"
)
"""How agents compact: the prompt asks for a summary of everything, and nothing else is kept."""
AROUND = 256
"""Tokens for the words of a prompt."""
PASSAGE = 1000
"""Characters of a passage that is searched for."""
RARE = 3
"""Turns of a conversation that have a word which counts as evidence."""
SEEN = True
"""Every way notes how much of the evidence it shows the model."""


@dataclass(frozen=True)
class Budget:
    """The same for every way."""

    window: int
    memory: int
    answer: int
    unit: int = 1
    """Tokens of the model that are counted as one: bytes of a scripted model."""

    @property
    def text(self) -> int:
        """Tokens that are read at a time beside an old memory and a new one."""
        return (self.window - 2 * self.memory - AROUND) * self.unit

    @property
    def shown(self) -> int:
        """Tokens that a question is answered from."""
        return (self.window - self.answer - AROUND) * self.unit


@dataclass(frozen=True)
class Newest:
    """Show the newest messages: plain truncation, or the whole text without a limit."""

    sees_answers: ClassVar[bool] = SEEN
    budget: Budget
    whole: bool = False

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        """Cut the oldest text off."""
        said = said_in(task.chunks)
        if not self.whole:
            said = newest(said, self.budget.shown, counter(chats))
        return await answered(task, chats, said, self.budget)


@dataclass(frozen=True)
class Evidence:
    """Show the sessions that the answer is in, and no others."""

    sees_answers: ClassVar[bool] = SEEN
    budget: Budget

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        """Choose the sessions by what the data says."""
        said = said_in([task.chunks[i] for i in task.questions[0].evidence])
        said = newest(said, self.budget.shown, counter(chats))
        return await answered(task, chats, said, self.budget)


@dataclass(frozen=True)
class Retrieval:
    """Keep all text, and show what a search for the question's words finds."""

    sees_answers: ClassVar[bool] = SEEN
    budget: Budget

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        """Show the best passages in their order, each with its session's date."""
        count = counter(chats)
        index = PassageIndex(None)
        found: list[str] = []
        for chunk in task.chunks:
            date = chunk.partition("\n")[0]
            for piece in packed(chunk, PASSAGE):
                found.append(piece if piece.startswith(date) else f"{date}\n{piece}")
                index.read(found[-1])
        left = self.budget.shown
        chosen: list[int] = []
        for hit in await index.search(task.questions[0].text, len(found)):
            number = int(hit.entry.id.rpartition("_")[2]) - 1
            size = count(found[number]) + 16
            if size <= left:
                chosen.append(number)
                left -= size
        said = said_in([found[i] for i in sorted(chosen)])
        return await answered(task, chats, said, self.budget)


@dataclass(frozen=True)
class Summary:
    """Ask for a summary when the window is full, and continue from that."""

    sees_answers: ClassVar[bool] = SEEN
    budget: Budget
    trials: int = 1
    """Task sets, each of which is tried once before the evaluation."""
    done: dict[str, tuple[str, list[str]]] = field(default_factory=dict, compare=False, repr=False)
    locks: dict[str, asyncio.Lock] = field(default_factory=dict, compare=False, repr=False)

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        """Compact a conversation once for all questions about it."""
        name = digest(*task.chunks)
        trial = len(self.locks) < self.trials
        async with self.locks.setdefault(name, asyncio.Lock()):
            if name not in self.done:
                found = await self._compact(task, chats)
                if not trial:
                    self.done[name] = found
            else:
                found = self.done[name]
        memory.replace(found[0], (), "summary")
        shown = [system(f"<memory>\n{found[0]}\n</memory>"), *said_in(found[1])]
        return await answered(task, chats, shown, self.budget)

    async def _compact(self, task: Task, chats: Chats) -> tuple[str, list[str]]:
        count, limit = counter(chats), self.budget.text
        summary, held, used = NO_MEMORY, [], 0
        for chunk in task.chunks:
            for piece, size in pieces(chunk, limit, count):
                if used + size + 2 > limit:
                    summary = await self._written(summary, held, chats)
                    held, used = [], 0
                held.append(piece)
                used += size + 2
        return summary, held

    async def _written(self, summary: str, held: Sequence[str], chats: Chats) -> str:
        prompt = fill(COMPACT, memory=summary, chunk="\n\n".join(held))
        most = self.budget.memory * self.budget.unit
        return (await chats.open("memory").say(prompt, max_tokens=most)).text


@dataclass(frozen=True)
class Served:
    """The endpoint: what does not fit is read into a memory, the newest messages stay."""

    sees_answers: ClassVar[bool] = SEEN
    budget: Budget
    folder: Path
    known: bool = False
    """Whether the question comes with the whole conversation, in one request that names no user.
    Otherwise the conversation grows session by session, and the question comes at its end."""
    trials: int = 1
    locks: dict[str, asyncio.Lock] = field(default_factory=dict, compare=False, repr=False)

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        """Fold the conversation, and ask with what is left of it."""
        name = digest(*task.chunks)
        # What the trials before an evaluation have read is read again, and its cost counted.
        folder = self.folder / ("trial" if len(self.locks) < self.trials else "kept") / name
        async with self.locks.setdefault(name, asyncio.Lock()):
            memories = Memories(folder, lambda shelf: self._keeper(shelf, chats))
            try:
                folded = await self._folded(task, self._folding(memories, chats), name)
            finally:
                memories.close()
        kept = folded.kept.memory.snapshot()["text"] if folded.kept else ""
        memory.replace(kept, (), "memory")
        return await asked(task, chats, folded.messages, self.budget)

    async def _folded(self, task: Task, folding: Folding, name: str) -> Any:
        said = [system(HEAD), *said_in(task.chunks)]
        user = "" if self.known else name
        if user and user not in folding.memories.users:
            for end in range(2, len(said)):
                await folding.fold({"messages": said[:end]}, user)
        return await folding.fold({"messages": [*said, question_of(task)]}, user)

    def _folding(self, memories: Memories, chats: Chats) -> Folding:
        sizes = [n * self.budget.unit for n in (self.budget.window, self.budget.memory)]
        reply = self.budget.answer * self.budget.unit
        return Folding(memories, counter(chats), *sizes, reply, self.known)

    def _keeper(self, shelf: Shelf, chats: Chats) -> Keeper:
        memory, answer = (n * self.budget.unit for n in (self.budget.memory, self.budget.answer))
        agent = FoldAgent(self.budget.text, memory, answer)
        return Counted(agent, chats.models, shelf, chats=chats)


@dataclass
class Counted(Keeper):
    """A keeper whose contexts are the episode's, so that their cost is counted."""

    chats: Chats | None = None

    def _chats(self, *key: str) -> Chats:
        assert self.chats is not None
        return self.chats


def said_in(texts: Sequence[str]) -> Shown:
    """Make a message of every session."""
    return [{"role": "user", "content": text} for text in texts]


def system(text: str) -> dict[str, Any]:
    """Make a system message."""
    return {"role": "system", "content": text}


def question_of(task: Task) -> dict[str, Any]:
    """Make the last message."""
    return {"role": "user", "content": task.questions[0].text}


def counter(chats: Chats) -> Count:
    """Count in the model's tokens."""
    tokenizer = chats.model("answer").renderer.tokenizer
    return lambda text: len(tokenizer.encode(text))


def newest(said: Shown, room: int, count: Count) -> Shown:
    """Return the newest messages that fit, the oldest of them from its end."""
    kept: Shown = []
    for message in reversed(said):
        size = count(message["content"]) + 16
        if size > room:
            text = message["content"]
            text = text[-max(1, (room - 16) * len(text) // size) :]
            while text and count(text) + 16 > room:
                text = text[len(text) // 10 + 1 :]
            return [{**message, "content": text}, *kept] if text else kept
        kept.insert(0, message)
        room -= size
    return kept


async def answered(task: Task, chats: Chats, said: Shown, budget: Budget) -> list[str]:
    """Ask the question after these messages."""
    shown = [system(HEAD), *said]
    if said and said[0]["role"] == "system":  # as one message: some models know no second
        shown = [system(f"{HEAD}\n\n{said[0]['content']}"), *said[1:]]
    return await asked(task, chats, [*shown, question_of(task)], budget)


async def asked(task: Task, chats: Chats, shown: Shown, budget: Budget) -> list[str]:
    """Let the model answer; note how much of the evidence it was shown."""
    chat = chats.open("answer", question=0)
    share = evidence_in(task, "\n".join(message["content"] for message in shown[:-1]))
    if share is not None:
        chat.context.counts["evidence"] = round(1000 * share)
    said = [Message(message["role"], (message["content"],)) for message in shown]
    return [(await chat.say(*said, max_tokens=budget.answer * budget.unit)).text]


def evidence_in(task: Task, text: str) -> float | None:
    """Return the share of the evidence's rare words that a text has; None without evidence."""
    turns = [turns_of(chunk) for chunk in task.chunks]
    counts = Counter(stem for own in turns for turn in own for stem in stems(turn))
    wanted: set[str] = set()
    for session, turn in places(task):
        if session < len(turns) and turn < len(turns[session]):
            wanted |= {stem for stem in stems(turns[session][turn]) if counts[stem] <= RARE}
    return len(wanted & stems(text)) / len(wanted) if wanted else None


def turns_of(chunk: str) -> list[str]:
    """Return the turns of a session, after its date."""
    _, _, said = chunk.partition("\n")
    mark = r"\n\n(?=user: |assistant: )" if "\n\nuser: " in f"\n{said}" else r"\n"
    return re.split(mark, said.strip())


def places(task: Task) -> list[tuple[int, int]]:
    """Return the session and the turn of each piece of evidence."""
    about: Mapping[str, Any] = (task.meta.get("questions") or [{}])[0]
    found: list[tuple[int, int]] = []
    for place in about.get("evidence_turns") or ():
        if isinstance(place, str):
            found += [(int(a) - 1, int(b) - 1) for a, b in re.findall(r"D(\d+):(\d+)", place)]
        else:
            found.append((int(place[0]), int(place[1])))
    return found

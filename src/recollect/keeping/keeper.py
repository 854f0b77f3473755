"""The keeper: an agent reads items window by window, and every state of its memory is kept.

A state is named by the agent, the models and all windows read so far. So the same items are never
read twice, items added later are read on from there, and without an item the memory is the one of a
reader who never saw it. Knows nothing of servers or files to read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from recollect.agents.base import (
    Agent,
    Reads,
    check_window,
    checked_answers,
    is_ours,
    open_memory,
    part_name,
    said_in,
)
from recollect.agents.reading import UNKNOWN_PROBLEM, tokenizer_of
from recollect.chat.chat import Chats, Model
from recollect.concurrency.many import apart
from recollect.config.stored import own_sources
from recollect.errors import UserError, boundary
from recollect.files import plain
from recollect.foreign import storable
from recollect.keeping.shelf import Shelf
from recollect.keeping.windows import Count, Item, Window, digest, pack
from recollect.memory.bank import BankMemory
from recollect.memory.base import Memory
from recollect.memory.text import TextMemory
from recollect.types import Context, MemoryOp, Question, Task

WINDOW = 5000
"""Tokens of a window for an agent that does not say how much it reads at a time."""


@dataclass(frozen=True)
class Cost:
    """What models were asked for."""

    calls: int = 0
    prompt_tokens: int = 0
    reply_tokens: int = 0

    @classmethod
    def of(cls, contexts: Iterable[Context]) -> Cost:
        """Add up contexts; a turn reads everything before it."""
        turns = [turn for context in contexts for turn in context.turns]
        replies = sum(len(turn.token_ids) for turn in turns)
        return cls(len(turns), sum(turn.start for turn in turns), replies)

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.reply_tokens + other.reply_tokens,
        )


@dataclass(frozen=True)
class Progress:
    """How far the reading is."""

    window: int
    """Windows read so far, those of earlier readings included."""
    windows: int
    tokens: int
    """Tokens of the windows read so far ..."""
    total: int
    """... and of all."""
    memory: Memory


@dataclass(frozen=True)
class Kept:
    """A memory after reading."""

    memory: Memory
    state: str
    """Names the agent, the models and all that was read."""
    windows: int
    tokens: int
    read: int = 0
    """Windows read just now; the others were known."""
    cost: Cost = Cost()
    items: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    """The items that the windows read just now show something of ..."""
    fresh_tokens: int = 0
    """... and the tokens of these windows."""
    contexts: tuple[Context, ...] = ()
    """What was read and written just now, token by token, if the keeper records it ..."""
    ops: tuple[MemoryOp, ...] = ()
    """... and how the memory changed."""

    @property
    def hash(self) -> str:
        """The memory's content, hashed."""
        return memory_hash(self.memory)


def memory_hash(memory: Memory) -> str:
    """Hash what a memory holds."""
    return digest(json.dumps(memory.snapshot(), sort_keys=True, default=plain))


def memory_text(memory: Memory) -> str:
    """Show a memory as text: for people, and for a model that is not the agent's."""
    if isinstance(memory, TextMemory):
        return memory.text
    found = memory.snapshot()
    core, notes = found.get("core"), found.get("notes")
    if isinstance(core, str) and isinstance(notes, dict):
        return "\n".join([core, *(f"{title}: {text}" for title, text in notes.items())]).strip()
    return json.dumps(found, ensure_ascii=False, default=plain)


def can_keep(agent: Agent) -> bool:
    """Tell whether an agent keeps what it reads in its memory; of a user's own, assume it does."""
    return isinstance(agent, Reads) or not is_ours(agent)


def check_keeps(agent: Agent) -> None:
    """Refuse an agent that keeps no memory."""
    if not can_keep(agent):
        raise UserError(
            f"the agent {part_name(agent)} keeps no memory of what it reads",
            "choose fold, gated, rolling or bank, or an agent of your own",
        )


def window_size(agent: Agent, window: int) -> int:
    """Return how many tokens an agent reads at a time: a chunk, or what its model has room for."""
    settings = ("max_memory_tokens", "max_core_tokens", "max_state_tokens")
    written = max(int(getattr(agent, name, 0)) for name in settings)
    around = min(256, window // 4)  # the words of the prompt
    room = window - 2 * written - around
    return max(1, min(getattr(agent, "chunk_size", None) or WINDOW, room))


def fitting(agent: Agent, window: int) -> Agent:
    """Let an agent read and write less at a time where its usual amounts do not fit the window."""
    try:
        check_window(agent, window)
        return agent
    except UserError:
        sizes = {spec.name: getattr(agent, spec.name) for spec in fields(agent)}  # type: ignore[arg-type]
        limits = [name for name in sizes if name.startswith("max_") and name.endswith("_tokens")]
        smaller = {name: min(sizes[name], max(1, window // 8)) for name in limits}
        written = max((size for name, size in smaller.items() if "answer" not in name), default=0)
        if "chunk_size" in sizes:
            smaller["chunk_size"] = max(1, window - 2 * written - 256)
        fitted: Agent = replace(agent, **smaller)  # type: ignore[type-var]
        check_window(fitted, window)
        return fitted


@dataclass
class Keeper:
    """One agent with its models, and the states it has been in."""

    agent: Agent
    models: Mapping[str, Model]
    shelf: Shelf
    identity: str = ""
    """Names the models, so that another model's memories are not taken for theirs."""
    on_progress: Callable[[Progress], None] = field(default=lambda _progress: None)
    record: bool = False
    """Whether what is read is returned token by token."""
    root: str = ""
    """Names the agent and the models; another keeper of the same ones has it already."""

    def __post_init__(self) -> None:
        check_keeps(self.agent)
        if not self.root:
            code = [source.sha256 for source in own_sources(self.agent)]
            self.root = digest(repr(self.agent), self.identity, *code)
        tokenizer = tokenizer_of(self._chats("count"), "memory")
        self.count: Count = lambda text: len(tokenizer.encode(text))
        self.size = window_size(self.agent, self.models["memory"].window)

    async def read(
        self,
        items: Iterable[Item],
        questions: Sequence[Question] = (),
        before: Kept | None = None,
    ) -> Kept:
        """Read what was not read before; return the memory after all of it."""
        found = list(pack(items, self.size, self.count))
        return await self.read_windows(found, questions, before)

    async def read_windows(
        self,
        found: Sequence[Window],
        questions: Sequence[Question] = (),
        before: Kept | None = None,
    ) -> Kept:
        """Read windows after what was read `before`; the questions are known while reading."""
        known = tuple(questions) if getattr(self.agent, "query_aware", True) else ()
        states = self.states(found, known, before.state if before else "")
        done = next((i for i in range(len(found), 0, -1) if states[i] in self.shelf), 0)
        memory = self._restored(states[1 : done + 1], before)
        cost = Cost()
        contexts: list[Context] = []
        edits = len(memory.ops)
        total = sum(window.tokens for window in found)
        self._tell(found, done, total, memory)
        for i in range(done, len(found)):
            own = await self._step(found[i], states[i : i + 2], known, memory)
            cost += Cost.of(own)
            contexts += own if self.record else ()
            self._tell(found, i + 1, total, memory)
        return Kept(
            memory,
            states[-1],
            windows=len(found),
            tokens=total,
            read=len(found) - done,
            cost=cost,
            items=_items(found),
            fresh=_items(found[done:]),
            fresh_tokens=sum(window.tokens for window in found[done:]),
            contexts=tuple(contexts),
            ops=tuple(memory.ops[edits:]),
        )

    def states(
        self, found: Sequence[Window], known: Sequence[Question] = (), before: str = ""
    ) -> list[str]:
        """Name the state before every window, and the one after the last."""
        states = [digest(self.root, before, *(question.text for question in known))]
        for window in found:
            states.append(digest(states[-1], window.text))
        return states

    async def answer(
        self, kept: Kept | Memory, questions: Sequence[Question]
    ) -> tuple[list[str], Cost]:
        """Answer questions from a memory, which stays as it is."""
        held = kept.memory if isinstance(kept, Kept) else kept
        task = Task(digest(memory_hash(held)), (), tuple(questions))
        memory = held.fork()
        chats = self._chats("answer", task.id)
        answers = await self.agent.run(task, chats, memory)
        checked = checked_answers(self.agent, answers, len(questions))
        return checked, Cost.of(said_in(chats, self.agent))

    async def _step(
        self, window: Window, states: Sequence[str], known: tuple[Question, ...], memory: Memory
    ) -> list[Context]:
        """Read one window and store the state after it; return what was said."""
        before, after = states
        edits = len(memory.ops)
        chats = self._chats(after)
        task = Task(after, (storable(window.text),), known)
        with boundary("agent"):
            if isinstance(self.agent, Reads):
                await self.agent.read(task, chats, memory)
            else:  # it can only answer as well
                asked = known or (Question(UNKNOWN_PROBLEM, ()),)
                await self.agent.run(Task(after, task.chunks, asked), chats, memory)
            said = said_in(chats, self.agent)
        ops = [[op.kind, op.data, op.label] for op in memory.ops[edits:]]
        record = {"before": before, "items": window.items, "tokens": window.tokens, "ops": ops}
        await apart(lambda: self.shelf.save(after, record))
        return said

    def _restored(self, states: Sequence[str], before: Kept | None = None) -> Memory:
        """Return the memory of a state: its edits are carried out again."""
        memory = before.memory.fork() if before else open_memory(self.agent, Task("kept", (), ()))
        wanted: list[tuple[str, Any]] = []
        for state in reversed(states):
            ops = self.shelf.load(state).get("ops")
            wanted[:0] = [(state, op) for op in ops] if isinstance(ops, list) else [(state, ops)]
            if wanted and isinstance(memory, TextMemory):
                wanted = wanted[-1:]  # each edit replaces the whole text
                break
        for state, op in wanted:
            try:
                _apply(memory, op)
            except ValueError as error:
                raise self.shelf.damaged(state, str(error)) from error
        return memory

    def _tell(self, found: Sequence[Window], done: int, total: int, memory: Memory) -> None:
        tokens = sum(window.tokens for window in found[:done])
        self.on_progress(Progress(done, len(found), tokens, total, memory))

    def _chats(self, *key: str) -> Chats:
        return Chats(self.models, ("keeping", *key))


def _items(found: Sequence[Window]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for window in found for item in window.items))


def memory_from(record: Mapping[str, Any], agent: Agent, same_model: bool = True) -> Memory:
    """Restore a memory that `memory_record` wrote down; for another model, as text alone."""
    memory = open_memory(agent, Task("kept", (), ()))
    ops = record.get("ops")
    try:
        for op in ops if isinstance(ops, list) else [ops]:
            _apply(memory, op if same_model else _without_tokens(op))
    except ValueError as error:
        raise UserError(
            f"the stored memory is not one of the agent {part_name(agent)} ({error})",
            "name the agent that wrote it with --agent",
        ) from error
    return memory


def _without_tokens(op: Any) -> Any:
    """Return an edit without the ids of its text, which mean nothing in another vocabulary."""
    match op:
        case [kind, {"token_ids": _, **data}, label]:
            return [kind, {**data, "token_ids": ()}, label]
    return op


def _apply(memory: Memory, op: Any) -> None:
    """Carry out an edit that was stored; whatever is wrong with it is a ValueError."""
    match op:
        case [str(kind), dict(data), str(label)]:
            pass
        case _:
            raise ValueError("it holds something that is no edit")
    try:
        memory.apply(MemoryOp(kind, data, label))  # type: ignore[attr-defined]
        if isinstance(memory, TextMemory | BankMemory):
            # The texts and tokens of ours are used later, where nobody expects something else.
            text, ids = (
                (memory.text, memory.token_ids)
                if isinstance(memory, TextMemory)
                else (memory.core, memory.core_ids)
            )
            if not isinstance(text, str) or not all(type(i) is int and i >= 0 for i in ids):
                raise ValueError("a text or a token is not one")
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"an edit lacks {error}") from error


def memory_record(memory: Memory) -> dict[str, Any]:
    """Write a memory down: the edits that make it again."""
    ops = memory.ops[-1:] if isinstance(memory, TextMemory) else memory.ops
    return {"ops": [[op.kind, op.data, op.label] for op in ops]}

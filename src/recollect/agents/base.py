"""The Agent protocol: a way of remembering, as one async function.

An agent may have more methods than `run`. The protocols below name them; code that runs an agent
calls the functions here, which say what happens where an agent has no such method.
"""

from __future__ import annotations

import functools
import inspect
import json
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar, get_type_hints, runtime_checkable
from weakref import WeakValueDictionary

from recollect.agents.estimates import USUAL, Lengths, Work
from recollect.agents.resources import Resources
from recollect.chat.chat import Chats, Reply
from recollect.chat.rendering import Tokenizer
from recollect.errors import OwnMistake, place_of, place_of_class, place_of_function
from recollect.files import plain
from recollect.memory.base import Memory
from recollect.memory.text import TextMemory
from recollect.policies.client import Endpoint
from recollect.tasks.base import GOLD
from recollect.tasks.files.lazy import Lazy
from recollect.types import Context, MemoryOp, Task

T = TypeVar("T")
MEMORY = ("ops", "snapshot", "fork", "close")
"""What every memory has."""


@runtime_checkable
class Agent(Protocol):
    """Read a task's chunks, keep a memory, answer its questions. Agents hold no state."""

    async def run(self, task: Task, chats: Chats, memory: Any) -> list[str]:
        """Return one answer per question, in order."""


@runtime_checkable
class Remembers(Protocol):
    """An agent that chooses its memory. Without this method it is given what its setting `memory`
    makes, such as a class of memories, and without such a setting a `TextMemory`."""

    def new_memory(self, task: Task) -> Memory:
        """Open the memory one episode starts with; the rollout closes it."""


@runtime_checkable
class Reads(Protocol):
    """An agent that can read without answering: its memory holds everything it keeps."""

    async def read(self, task: Task, chats: Chats, memory: Any) -> None:
        """Read the chunks into the memory; answer nothing.

        The questions, if there are any, are known while reading. `run` on a task without chunks
        then answers questions from the memory.
        """


@runtime_checkable
class Bounded(Protocol):
    """An agent that can tell from its settings alone that they do not fit a model."""

    def check_window(self, window: int) -> None:
        """Refuse settings that cannot fit a model's window."""


@runtime_checkable
class Measured(Protocol):
    """An agent that knows how long its contexts get."""

    def lengths(self, window: int | None) -> Lengths:
        """Bound the contexts, within the model's window where that is known."""


@runtime_checkable
class Estimated(Protocol):
    """An agent that knows how much an episode reads and writes."""

    def work(self, task: Task, tokenizer: Tokenizer, window: int) -> Work:
        """Add up one episode of a task, at most."""


@runtime_checkable
class Checked(Protocol):
    """An agent or reward that cannot go with every other part of a run."""

    def check(self, resources: Resources) -> None:
        """Refuse the other parts that it cannot work with."""


@runtime_checkable
class Bindable(Protocol):
    """An agent or reward that needs what no settings file can hold."""

    def bind(self, resources: Resources) -> Any:
        """Return a copy that holds what it needs."""


@runtime_checkable
class Asks(Protocol):
    """An agent or reward that asks servers of its own."""

    def servers(self) -> Mapping[str, Endpoint]:
        """Return where they are, by the name of its setting; all are asked before a run starts."""


@runtime_checkable
class SeesAnswers(Protocol):
    """An agent that is shown the accepted answers and the evidence: a bound, and no competitor."""

    sees_answers: bool


def sees_answers(agent: Agent) -> bool:
    """Tell whether an agent asks to be shown the accepted answers."""
    return isinstance(agent, SeesAnswers) and agent.sees_answers


def as_shown(task: Task, sees: bool) -> Task:
    """Return a task as an agent sees it: without its answers, and the agent's own to change."""
    # Episodes share tasks: what one agent takes out of a list is no other agent's loss.
    chunks = list(task.chunks) if isinstance(task.chunks, list) else task.chunks
    if not isinstance(chunks, list | tuple | Lazy):
        chunks = _READ.get(id(chunks)) or _READ.setdefault(id(chunks), _Read(chunks))
    if sees:
        return replace(task, chunks=chunks, meta=copied(task.meta))
    asked = tuple(replace(q, answers=(), evidence=()) for q in task.questions)
    meta = {name: copied(value) for name, value in task.meta.items() if name not in GOLD}
    return replace(task, chunks=chunks, questions=asked, meta=meta)


class _Read(Lazy[str]):
    """Chunks of a class of someone's own, of which only the items can be had."""

    def __init__(self, chunks: Sequence[str]) -> None:
        self._chunks = chunks

    def __len__(self) -> int:
        return len(self._chunks)

    def item(self, place: int) -> str:
        """Return a chunk."""
        return self._chunks[place]


_READ: WeakValueDictionary[int, _Read] = WeakValueDictionary()
"""By the id of the chunks, which each of these keeps alive: siblings have one and the same."""


def copied(value: Any) -> Any:
    """Copy plain data, so that a change is the holder's own."""
    if type(value) is dict:
        return {name: copied(inner) for name, inner in value.items()}
    return type(value)(map(copied, value)) if type(value) in (list, tuple, set) else value


def open_memory(agent: Agent, task: Task) -> Memory:
    """Open the memory that an episode starts with."""
    # As isinstance(agent, Remembers) does; every episode comes by here, and that takes 20 µs.
    own = getattr(agent, "new_memory", None)
    kind = kept_by(agent) if own is None else own
    found: Memory = _opened(kind) if own is None else own(task)
    if missing := [name for name in MEMORY if not hasattr(found, name)]:
        what = f"{type(found).__name__} is no memory: it has no {', '.join(missing)}"
        raise OwnMistake(what, place_of_class(type(found)) or place_of_function(kind))
    return found


def _opened(kind: Any) -> Memory:
    try:
        found: Memory = kind()
    except TypeError as error:
        if place_of(error):
            raise
        name = getattr(kind, "__name__", "the memory")
        place = place_of_class(kind) if inspect.isclass(kind) else place_of_function(kind)
        raise OwnMistake(f"{name} cannot be opened without settings: {error}", place) from None
    return found


def kept_by(agent: object) -> Any:
    """Return what makes an agent's memories: its setting `memory`, or else one text."""
    own = getattr(agent, "memory", None)
    return own if callable(own) else TextMemory


def kept_ops(agent: Agent, memory: Memory) -> tuple[list[MemoryOp], OwnMistake | None]:
    """Return a memory's edits as they are at the end, and what one that cannot be stored is."""
    given: Any = memory.ops
    if is_ours(memory) and is_ours(agent):
        return list(given), None
    if not isinstance(given, Iterable):
        return [], _odd_ops(agent, memory, f"are {given!r:.80}, not a list")
    ops, mistake = [], None
    for op in given:
        try:
            fits = isinstance(op, MemoryOp) and bool(json.dumps(op.data, default=plain))
        except (TypeError, ValueError, RecursionError):
            fits = False
        if fits:
            ops.append(op)
        else:
            what = f"hold {reprlib.repr(op)[:80]}, which is no MemoryOp with data that is plain"
            mistake = _odd_ops(agent, memory, what)
    return ops, mistake


def _odd_ops(agent: Agent, memory: Memory, what: str) -> OwnMistake:
    kind = type(memory)
    place = place_of_agent(agent) if is_ours(memory) else place_of_class(kind)
    return OwnMistake(f"the ops of {kind.__name__} {what}", place)


def checked_answers(agent: Agent, answers: Any, questions: int) -> list[str]:
    """Return an agent's answers; refuse what is not one text per question."""
    wrong = ""
    if not isinstance(answers, list | tuple):
        wrong = f"{answers!r:.80}, not a list of answers"
    elif len(answers) != questions:
        wrong = f"{len(answers)} answers to {questions} questions"
    elif strange := [answer for answer in answers if not isinstance(answer, str)]:
        hint = ": return the reply's text" if isinstance(strange[0], Reply) else ""
        hint = ": await it" if inspect.isawaitable(strange[0]) else hint
        wrong = f"{strange[0]!r:.80} among its answers, not a list of answers as texts{hint}"
    if wrong:
        raise OwnMistake(f"the agent {part_name(agent)} returned {wrong}", place_of_agent(agent))
    return [str.__str__(answer) for answer in answers]  # a class of texts could say it is any


def said_in(chats: Chats, agent: Agent) -> list[Context]:
    """Return what an agent's chats said; refuse an agent that changed it, or asked beside them."""
    if changed := chats.changed:
        raise OwnMistake(f"the agent {part_name(agent)} {changed}", place_of_agent(agent))
    return chats.kept


def part_name(part: object) -> str:
    """Name a part of a run for people: a class, or the function that stands for one."""
    function: Any = getattr(part, "function", None)
    if isinstance(function, functools.partial):
        function = function.func
    if not callable(function):  # no function is called so: it may be a setting of that name
        return type(part).__name__
    return str(function.__name__) if inspect.isroutine(function) else type(function).__name__


def place_of_agent(agent: Agent) -> str:
    """Return where an agent's function is defined."""
    function = getattr(agent, "function", None)
    return place_of_function(function if callable(function) else agent.run)


def memory_kind(agent: object) -> type | None:
    """Return the class of an agent's memories; None if its method does not say."""
    if not isinstance(agent, Remembers):
        own = kept_by(agent)
        return own if inspect.isclass(own) else None
    try:
        kind = get_type_hints(agent.new_memory).get("return")
    except NameError:  # annotated with a name that only a type checker imports
        return None
    return kind if inspect.isclass(kind) else None


def check_window(agent: Agent, window: int) -> None:
    """Refuse an agent whose settings cannot fit a model's window, if it can tell."""
    if isinstance(agent, Bounded):
        agent.check_window(window)


def lengths_of(agent: Agent, window: int | None) -> Lengths:
    """Bound the contexts of an agent; one that does not know may fill the window."""
    if isinstance(agent, Measured):
        return agent.lengths(window)
    context = window or USUAL
    return Lengths(context, context, context)


def check_part(part: object, resources: Resources) -> None:
    """Let an agent or a reward look at the other parts of its run."""
    if isinstance(part, Checked):
        part.check(resources)


def bound(part: T, resources: Resources) -> T:
    """Give an agent or a reward what it needs from the run."""
    return part.bind(resources) if isinstance(part, Bindable) else part


def servers_of(part: object) -> Mapping[str, Endpoint]:
    """Return the servers that an agent or a reward asks."""
    return part.servers() if isinstance(part, Asks) else {}


def is_ours(part: object) -> bool:
    """Tell whether a part of a run is built in, and no user's function in a class of ours."""
    return _is_built_in(getattr(part, "function", None) or type(part))


def owns(agent: Agent, *names: str) -> bool:
    """Tell whether one of an agent's methods or settings is a user's own, not inherited from us."""
    if getattr(agent, "function", None):
        return not is_ours(agent)
    found = (next((k for k in type(agent).__mro__ if name in vars(k)), None) for name in names)
    return not all(kind is None or _is_built_in(kind) for kind in found)


def given_early(agent: Agent, task: Task) -> str:
    """Say that a user's own code gets questions with the text that are to be asked after it."""
    if task.meta.get("questions_known", True) or not owns(agent, "run", "new_memory"):
        return ""
    return (
        "is given the questions with the text, though they are to be asked after it: its own code"
        " decides when it looks at them"
    )


def _is_built_in(defined: object) -> bool:
    return str(getattr(defined, "__module__", "")).partition(".")[0] == "recollect"

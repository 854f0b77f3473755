"""Agents of your own: a plain async function, a class with `run`, or an instance of one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, is_dataclass
from typing import Any

from recollect.agents.base import Agent
from recollect.chat.chat import Chats
from recollect.errors import UserError, called_by
from recollect.memory.text import TextMemory
from recollect.types import Task

AgentFunction = Callable[[Task, Chats, TextMemory], Awaitable[list[str]]]
HOW = (
    "write `async def name(task, chats, memory)` that returns one answer per question, or a frozen"
    " dataclass with such a method `run`"
)


@dataclass(frozen=True)
class FunctionAgent:
    """A function as an agent; its memory is one text."""

    function: AgentFunction
    memory: Callable[..., Any] = TextMemory
    """What an episode starts with: a class of memories, such as mine:Notes."""

    def __repr__(self) -> str:
        own = "" if self.memory is TextMemory else f", {shown(self.memory)}"
        return f"FunctionAgent({shown(self.function)}{own})"

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        """Call the function."""
        return await self.function(task, chats, memory)


def as_agent(item: Any) -> Agent:
    """Make an agent of a function, a class or an instance; refuse anything else."""
    found = made(item, "agent", HOW) if inspect.isclass(item) else item
    if isinstance(found, Agent):
        _check_function(found.run, f"{type(found).__name__}.run")
        return found
    if not callable(found):
        raise UserError(f"{show(item)} is not an agent: it has no method run", HOW)
    _check_function(found, show(item))
    return FunctionAgent(found)


def _check_function(function: Any, name: str) -> None:
    called = called_by(function)
    if inspect.isasyncgenfunction(called):
        raise UserError(f"{name} is not an agent: it yields, and must return a list", HOW)
    if not inspect.iscoroutinefunction(called):
        raise UserError(f"{name} is not an agent: it is not async", HOW)
    check_arguments(function, name, ("task", "chats", "memory"), HOW)


def made(kind: type, what: str, how: str) -> Any:
    """Make an instance of a user's class with its usual settings."""
    try:
        inspect.signature(kind).bind()
    except TypeError as error:
        raise UserError(
            f"{kind.__name__} cannot be made without settings ({error})",
            f"give every field of the {what} a default: on the command line its fields are flags",
        ) from None
    except ValueError:  # without a signature in Python: its own error tells
        pass
    try:
        return kind()
    except TypeError as error:
        raise UserError(f"{kind.__name__} cannot be a {what} ({error})", how) from error


def check_arguments(function: Any, name: str, given: tuple[str, ...], how: str) -> None:
    """Refuse a function that cannot be called with these arguments."""
    try:
        inspect.signature(function).bind(*given)
    except TypeError as error:
        raise UserError(f"{name} does not take ({', '.join(given)}): {error}", how) from None


def show(item: Any) -> str:
    """Name a class, a function or any other object for people."""
    if isinstance(item, functools.partial):
        return f"partial of {show(item.func)}"
    return str(getattr(item, "__qualname__", None) or f"{item!r:.80}")


def shown(function: Any) -> str:
    """Write what can be called in one way only, without its address in memory."""
    if isinstance(function, functools.partial):
        given = [*map(repr, function.args), *(f"{k}={v!r}" for k, v in function.keywords.items())]
        return f"partial({', '.join([shown(function.func), *given])})"
    if inspect.isroutine(function) or inspect.isclass(function):
        return f"{function.__module__}:{function.__qualname__}"
    return repr(function) if is_dataclass(function) else shown(type(function))

"""What the episodes of a user's own agent share, and whether they change it.

Many run at once: a list that one of them fills is in what the others read. Only plain values are
looked at, and what a user's own objects hold of them.
"""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from recollect.agents.base import Agent, is_ours, part_name, place_of_agent
from recollect.concurrency.stop import is_own_code
from recollect.errors import called_by

DEEP = 4
"""How far into lists and objects one looks."""
MANY = 10_000
"""Items of a list above which only their number is looked at."""
UNKNOWN = object()

Held = Mapping[str, Any]


def held(agent: Agent) -> Held:
    """Copy what all episodes of an agent reach: attributes, globals, what it closes over.

    An agent of ours holds nothing.
    """
    if is_ours(agent):
        return {}
    function = getattr(agent, "function", None)
    owner = function if callable(function) and not inspect.isroutine(function) else agent
    kept = {f"self.{name}": value for name, value in getattr(owner, "__dict__", {}).items()}
    called = called_by(function if callable(function) else agent.run)
    with suppress(TypeError, ValueError):  # not written in Python; a cell that is empty yet
        reached = inspect.getclosurevars(called)
        kept |= {**reached.globals, **reached.nonlocals}
    # What is computed when it is first asked for is no state.
    members = inspect.getmembers_static(type(owner), lambda one: isinstance(one, cached_property))
    cached = {f"self.{name}" for name, _member in members}
    return {name: _copied(value, DEEP) for name, value in kept.items() if name not in cached}


def changes(agent: Agent, before: Held) -> str:
    """Say what episodes changed of what they share; nothing if all is as it was before."""
    after = held(agent)
    names = [
        name
        for name, value in after.items()
        if UNKNOWN not in (value, before.get(name)) and value != before.get(name)
    ]
    if not names:
        return ""
    return (
        f"{place_of_agent(agent)}: {part_name(agent)} changes {', '.join(names)} as it runs, which"
        " all of its episodes share, many at once: let what one of them needs be local to it"
    )


def _copied(value: Any, deep: int) -> Any:
    if value is None or isinstance(value, str | bytes | int | float):
        return value if value == value else repr(value)
    if deep and isinstance(value, list | tuple | set | frozenset | deque | dict):
        if len(value) > MANY:
            return len(value)
        parts = value.items() if isinstance(value, dict) else value
        return [_copied(part, deep - 1) for part in parts]
    own = getattr(sys.modules.get(type(value).__module__), "__file__", None)
    if deep and own and is_own_code(own) and hasattr(value, "__dict__"):
        return [(name, _copied(part, deep - 1)) for name, part in vars(value).items()]
    return UNKNOWN

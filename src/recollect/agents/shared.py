"""What the episodes of a user's own agent share, and whether they change it.

Many run at once: a list that one of them fills is in what the others read. Only plain values are
looked at, and what a user's own objects hold of them.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

from recollect.agents.base import Agent, is_ours, part_name, place_of_agent
from recollect.agents.reach import is_users, reached
from recollect.errors import called_by

DEEP = 4
"""How far into lists and objects one looks."""
MANY = 10_000
"""Items of lists and objects, all together; of what is beyond, only the number is looked at."""
SOME = 2_500
"""The same of what an agent's code reaches beside it, which may be a lot."""
UNKNOWN = object()

Held = Mapping[str, Any]


def held(agent: Agent) -> Held:
    """Copy what all episodes of an agent reach: attributes, and what its code reaches.

    An agent of ours holds nothing.
    """
    if is_ours(agent):
        return {}
    function = getattr(agent, "function", None)
    owner = function if callable(function) and not inspect.isroutine(function) else agent
    kept = {f"self.{name}": value for name, value in list(getattr(owner, "__dict__", {}).items())}
    called = called_by(function if callable(function) else agent.run)
    if isinstance(owner, partial):
        given = [*enumerate(owner.args, start=1), *owner.keywords.items()]
        kept |= {f"the argument {name}": value for name, value in given}
    wider = dict(reached([called, type(owner), *kept.values()]))
    # What is computed when it is first asked for is no state.
    members = inspect.getmembers_static(type(owner), lambda one: isinstance(one, cached_property))
    cached = {f"self.{name}" for name, _member in members}
    # Each has a budget of its own: where one grows, the others are still copied as before.
    found = {n: _copied(value, DEEP, [MANY]) for n, value in kept.items() if n not in cached}
    return {n: _copied(value, DEEP, [SOME]) for n, value in wider.items()} | found


def changes(agent: Agent, before: Held) -> str:
    """Say what episodes changed of what they share; nothing if all is as it was before."""
    after = held(agent)
    names = [
        name
        for name, value in after.items()
        if (_differ(before[name], value) if name in before else value is not UNKNOWN)
    ]
    if not names:
        return ""
    return (
        f"{place_of_agent(agent)}: {part_name(agent)} changes {', '.join(names)} as it runs, which"
        " all of its episodes share, many at once: if that is a cache, all is well; otherwise let"
        " what one of them needs be local to it"
    )


def _copied(value: Any, deep: int, left: list[int]) -> Any:
    """Copy what is plain: a list for what holds items, and a dict for an object of a user's own.

    `left` holds how many items may still be copied.
    """
    if value is None or isinstance(value, str | bytes | int | float):
        return value if value == value else repr(value)
    plain = isinstance(value, list | tuple | set | frozenset | deque | dict)
    if not deep or not (plain or (is_users(type(value)) and hasattr(value, "__dict__"))):
        return UNKNOWN
    size = len(value if plain else vars(value))
    if size > left[0]:
        return size
    left[0] -= size
    copied = partial(_copied, deep=deep - 1, left=left)
    try:  # Lists are made at once, as threads of the user's may change what they are made of.
        if isinstance(value, dict):
            return [(copied(key), copied(item)) for key, item in list(value.items())]
        if plain:
            return [copied(item) for item in list(value)]
        return {name: copied(item) for name, item in list(vars(value).items())}
    except RuntimeError:
        return UNKNOWN


def _differ(old: Any, new: Any) -> bool:
    """Tell whether a copy is another one; an object that is made when it is needed is no sign."""
    if UNKNOWN in (old, new) or (old is None and isinstance(new, dict)):
        return False
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        return any(_differ(old[name], new[name]) for name in new)
    if isinstance(new, list | tuple) and type(old) is type(new) and len(old) == len(new):
        return any(map(_differ, old, new))
    return bool(old != new)

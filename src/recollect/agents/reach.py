"""What the code of a user's own agent reaches and all of its episodes share.

Those are the globals that its functions name, and the functions and classes these call in turn, in
every module that is the user's; what they close over; and what a function or a class keeps itself.
"""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from recollect.concurrency.stop import is_own_code

MOST = 500
"""Functions and classes that are looked at."""


def reached(items: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield by name what functions, classes and objects reach; the first one's module is home."""
    home = getattr(items[0], "__globals__", {})
    left: deque[Any] = deque(items)
    seen: set[int] = set()
    while left and len(seen) < MOST:
        item = _code_of(left.popleft())
        if item is None or id(item) in seen:
            continue
        seen.add(id(item))
        found = _kept_by_class(item) if inspect.isclass(item) else _kept_by(item, home)
        for name, value in found:
            left.append(value)
            yield name, value
        if inspect.isclass(item):
            left.extend(item.__bases__)


def _code_of(item: Any) -> Any:
    """Return the user's function or class that an item is, or is an object of; None without one."""
    while isinstance(item, partial):
        item = item.func
    if isinstance(item, property):
        item = item.fget
    elif isinstance(item, classmethod | staticmethod | MethodType):  # others may answer to any name
        item = item.__func__
    if inspect.isroutine(item):
        item = inspect.unwrap(item)
        return item if isinstance(item, FunctionType) and _is_own_function(item) else None
    kind = item if inspect.isclass(item) else type(item)
    return kind if is_users(kind) else None


def _kept_by(function: FunctionType, home: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function names, and what it holds on to itself."""
    code, own = function.__code__, function.__name__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it is empty yet
            continue
    arguments = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    given = dict(zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True))
    for name, value in (given | (function.__kwdefaults__ or {})).items():
        yield f"the default of {name}", value
    yield from ((f"{own}.{name}", item) for name, item in _named(vars(function)))
    space, names = function.__globals__, dict.fromkeys(_names(code))
    prefix = "" if space is home else f"{space.get('__name__', '')}."
    for name in (name for name in names if name in space):
        value = space[name]
        if isinstance(value, ModuleType) and _is_own_module(value):
            known = vars(value)
            yield from ((f"{name}.{one}", known[one]) for one in names if one in known)
        else:
            yield f"{prefix}{name}", value


def _kept_by_class(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield what is in a class: its methods, and what it holds for all of its objects."""
    return ((f"{kind.__name__}.{name}", item) for name, item in _named(vars(kind)))


def _named(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what has a name of the user's, and methods with one of Python's, such as __call__."""
    for name, value in list(values.items()):  # at once, as threads may add more
        if not name.startswith("__") or inspect.isroutine(value):
            yield name, value


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code looks up, inner functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def is_users(kind: type) -> bool:
    """Tell whether a class is a user's."""
    module = sys.modules.get(kind.__module__)
    return module is not None and _is_own_module(module)


def _is_own_module(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return _is_own_file(file) if isinstance(file, str) else module.__name__ == "__main__"


def _is_own_function(function: FunctionType) -> bool:
    name = function.__code__.co_filename
    if name == "<string>":  # a method of a data class, unless it is of `python -c`
        return function.__globals__.get("__name__") == "__main__"
    return _is_own_file(name)


_is_own_file = cache(is_own_code)

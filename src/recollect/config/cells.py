"""The source of what was defined in no file: a notebook's cells, or lines typed at a prompt."""

from __future__ import annotations

import functools
import inspect
import linecache
import sys
from collections.abc import Iterable, Iterator
from types import CodeType, ModuleType
from typing import Any

MAIN = "__main__"


def is_interactive() -> bool:
    """Tell whether the main module is a notebook or a prompt, and no file."""
    main = sys.modules.get(MAIN)
    return main is not None and not getattr(main, "__file__", None)


def source_of(items: Iterable[Any]) -> str:
    """Return the cells that define some things and what these use, in the order of their lines.

    Modules and names that were imported elsewhere come first, as import statements.
    """
    space = vars(sys.modules[MAIN])
    cells: dict[str, str] = {}
    imports: set[str] = set()
    left, seen = list(items), set()
    while left:
        item = left.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        for code in _codes(item):
            cells.setdefault(code.co_filename, "".join(linecache.getlines(code.co_filename)))
            for name in _names(code):
                if name in space and _is_own(space[name]):
                    left.append(space[name])
                elif name in space and (line := _import_of(name, space[name])):
                    imports.add(line)
    texts = [text.strip() for text in cells.values() if text.strip()]
    lines = sorted(line for line in imports if all(line not in text for text in texts))
    return (
        "\n\n\n".join(["\n".join(lines), *sorted(texts, key=_position)] if lines else texts) + "\n"
    )


def _position(text: str) -> int:
    """Return when a cell was run, as far as the notebook remembers it."""
    history = [str(cell).strip() for cell in vars(sys.modules[MAIN]).get("In", [])]
    return max((i for i, cell in enumerate(history) if cell == text), default=0)


def _is_own(item: Any) -> bool:
    return getattr(item, MODULE, "") == MAIN and (inspect.isroutine(item) or inspect.isclass(item))


def _codes(item: Any) -> Iterator[CodeType]:
    """Yield the code of a function, or of all functions of a class or an object."""
    if isinstance(item, functools.partial):
        yield from _codes(item.func)
    elif inspect.isclass(item):
        if item.__module__ == MAIN:
            yield from (code for own in vars(item).values() for code in _codes(own))
    elif inspect.isroutine(item) or isinstance(item, classmethod | staticmethod | property):
        function = getattr(item, "fget", None) or inspect.unwrap(item)  # type: ignore[arg-type]
        function = getattr(function, "__func__", function)
        if getattr(function, MODULE, "") == MAIN and hasattr(function, "__code__"):
            yield function.__code__
    elif type(item).__module__ == MAIN:
        yield from _codes(type(item))


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code looks up, inner functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _import_of(name: str, item: Any) -> str:
    if isinstance(item, ModuleType):
        return f"import {item.__name__}" + (f" as {name}" if name != item.__name__ else "")
    home, own = getattr(item, MODULE, ""), getattr(item, "__name__", "")
    if not home or home in (MAIN, "builtins") or not str(own).isidentifier():
        return ""
    return f"from {home} import {own}" + (f" as {name}" if name != own else "")


MODULE = "__module__"

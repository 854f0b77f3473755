"""What an agent or a task family is, in writing: another one is never taken for it."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from recollect.agents.base import is_ours
from recollect.config.modules import is_installed
from recollect.config.overlay import is_plain_class, to_table
from recollect.config.stored import own_sources


def described(part: Any) -> str:
    """Write an agent or a task family down: its settings are what it is, with its own code."""
    own = to_table(part)
    inside = part
    if not is_dataclass(part) and isinstance(own, dict):  # all that it has, whatever made it
        inside = dict(getattr(part, "__dict__", {}))
        own |= {name: to_table(value) for name, value in inside.items()}
    held = [] if is_ours(part) else _held(inside, {})
    if held and isinstance(own, dict):
        own |= {"with": to_table(held)}
    code = "".join(f" {source.module} {source.sha256[:12]}" for source in own_sources(part))
    return json.dumps(own, default=str) + code


def _held(item: Any, seen: dict[int, Any]) -> list[Any]:
    """Return what functions and users' objects hold, which no settings tell."""
    if id(item) in seen:
        return []
    seen[id(item)] = item  # which keeps it, and so its number
    if isinstance(item, np.ndarray):
        return [blake2b(item.tobytes(), digest_size=8).hexdigest()]
    if isinstance(item, partial):
        return [*_held(item.func, seen), *_with([*item.args, item.keywords], seen)]
    if inspect.ismethod(item):
        return _held(item.__self__, seen)
    if inspect.isfunction(item):
        usual = [*(item.__defaults__ or ()), *(item.__kwdefaults__ or {}).values()]
        return _with([*_cells(item), *usual], seen)
    inside = _inside(item)
    if inside is None:
        own = dict(getattr(item, "__dict__", {})) if _is_users(type(item)) else {}
        return _with([own], seen) if own else []
    return [found for one in inside for found in _held(one, seen)]


def _inside(item: Any) -> Iterable[Any] | None:
    """Return what is in something that settings tell all of, but for what is in that."""
    if isinstance(item, Mapping):
        return item.values()
    if is_dataclass(item) and not inspect.isclass(item):
        return [getattr(item, spec.name) for spec in fields(item)]
    return item if isinstance(item, list | tuple) else None


def _with(held: Iterable[Any], seen: dict[int, Any]) -> list[Any]:
    return [found for one in held for found in (one, *_held(one, seen))]


def _cells(function: Any) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # one that is empty yet
            yield cell.cell_contents


def _is_users(kind: type) -> bool:
    """Tell whether a class is a user's: what a package's objects hold may change by itself."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return is_plain_class(kind) and not is_installed(Path(file or ""))

"""Which values and namespaces a search of LangGraph's means: its operators and its wildcards."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": lambda value, other: float(value) > float(other),
    "$gte": lambda value, other: float(value) >= float(other),
    "$lt": lambda value, other: float(value) < float(other),
    "$lte": lambda value, other: float(value) <= float(other),
}


def fits(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Tell whether a value has every field as a filter wants it."""
    return all(_same(value.get(name), part) for name, part in (wanted or {}).items())


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(name.startswith("$") for name in wanted):
            return all(_compares(value, name, other) for name, other in wanted.items())
        return isinstance(value, Mapping) and fits(value, wanted)
    if isinstance(wanted, list | tuple):
        parts = isinstance(value, list | tuple) and len(value) == len(wanted)
        return parts and all(map(_same, value, wanted))
    return bool(value == wanted)


def _compares(value: Any, name: str, other: Any) -> bool:
    if name not in COMPARISONS:
        raise ValueError(f"there is no operator {name!r}, only {', '.join(COMPARISONS)}")
    try:
        return bool(COMPARISONS[name](value, other))
    except (TypeError, ValueError):  # a text is neither more nor less than a number
        return False


def matches(namespace: tuple[str, ...], conditions: Iterable[Any]) -> bool:
    """Tell whether a namespace begins or ends as every condition says; * is any label."""
    for condition in conditions:
        path = tuple(condition.path)
        start = 0 if condition.match_type == "prefix" else len(namespace) - len(path)
        part = namespace[start : start + len(path)] if start >= 0 else ()
        if len(part) != len(path):
            return False
        if any(wanted not in ("*", label) for label, wanted in zip(part, path, strict=True)):
            return False
    return True

"""What programs compute with: plain values of a few exact types, and what is asked of a model.

Nothing else is ever bound to a name, so there is no object that a program could climb out by.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from recollect.programs.budget import LARGEST, Budget, ProgramError

Value = Any
"""One of KINDS, exactly: no subclass."""
DEEPEST = 40
"""Lists inside one another, where they are looked at as a whole."""


class Set:
    """A set that keeps the order in which its members came: the same in every process."""

    __slots__ = ("items",)

    def __init__(self, items: Iterable[Value] = ()) -> None:
        self.items: dict[Value, None] = dict.fromkeys(items)


class Match:
    """Where a pattern was found, and its groups."""

    __slots__ = ("names", "spans", "texts")

    def __init__(self, texts: list[Value], spans: list[Value], names: dict[str, int]) -> None:
        self.texts = texts
        self.spans = spans
        self.names = names


@dataclass(frozen=True, eq=False)
class Pending:
    """An answer that was asked for and has not come; whatever looks at it waits for all of them."""

    number: int


class Waiting(Exception):
    """A program needs an answer that has not come."""


KINDS = {
    type(None): "None",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "a dict",
    tuple: "a tuple",
    range: "a range",
    Set: "a set",
    Match: "a match",
}
NUMBERS = (int, float, bool)
CONTAINERS = (list, dict, tuple, Set)


def kind(value: Value) -> str:
    """Name a value's kind; an answer that has not come is waited for instead."""
    if type(value) is Pending:
        raise Waiting
    return KINDS.get(type(value), "something else")


def number(value: Value) -> Value:
    """Let a number pass that is small enough."""
    if type(value) is int and not -LARGEST < value < LARGEST:
        raise ProgramError("a number is too large: whole numbers stay below 2**60")
    if type(value) not in NUMBERS:
        raise ProgramError("the result is no number")
    return value


def text_of(value: Value, what: str) -> str:
    """Return a text; refuse any other value."""
    if type(value) is not str:
        raise ProgramError(f"{what} is {kind(value)}, not a text")
    return value


def whole(value: Value, what: str) -> int:
    """Return a whole number; refuse any other value."""
    if type(value) is bool or type(value) is not int:
        raise ProgramError(f"{what} is {kind(value)}, not a whole number")
    return value


def key(value: Value, budget: Budget, depth: int = 0) -> Value:
    """Let a value pass that a dict or a set can hold."""
    if type(value) is str:
        budget.step(len(value) >> 10)
    elif type(value) is tuple and depth < DEEPEST:
        for item in value:
            key(item, budget, depth + 1)
    elif type(value) not in NUMBERS and value is not None:
        raise ProgramError(f"{kind(value)} cannot be a key or a member of a set")
    return value


def truth(value: Value) -> bool:
    """Tell whether a value counts as true."""
    if type(value) is Set:
        return bool(value.items)
    if type(value) is Pending:
        raise Waiting
    return bool(value)  # every other kind has a truth value of its own


def items(value: Value, budget: Budget) -> list[Value]:
    """Return what is in a value, in order, as a list that later changes do not reach."""
    kind_ = type(value)
    if kind_ is list or kind_ is tuple or kind_ is dict:
        found = list(value)
    elif kind_ is str:
        budget.take(56 * len(value))
        found = list(value)
    elif kind_ is Set:
        found = list(value.items)
    elif kind_ is range:
        budget.take(36 * min(len(value), budget.limits.max_bytes))
        found = list(value)
    else:
        raise ProgramError(f"{kind(value)} has nothing in it to go through")
    budget.take(8 * len(found))
    return found


def equal(one: Value, other: Value, budget: Budget, depth: int = 0) -> bool:
    """Compare two values as Python does, in counted steps."""
    budget.step()
    if depth > DEEPEST:
        raise ProgramError(f"lists are compared at most {DEEPEST} deep")
    first, second = type(one), type(other)
    if Pending in (first, second):
        raise Waiting
    if first is str and second is str:
        budget.step(min(len(one), len(other)) >> 8)
        return bool(one == other)
    if first in NUMBERS and second in NUMBERS:
        return bool(one == other)
    if first is not second:
        return False
    if first is list or first is tuple:
        return len(one) == len(other) and all(
            equal(a, b, budget, depth + 1) for a, b in zip(one, other, strict=True)
        )
    if first is dict:
        return len(one) == len(other) and all(
            k in other and equal(v, other[k], budget, depth + 1) for k, v in one.items()
        )
    if first is Set:
        budget.step(len(one.items))
        return bool(one.items.keys() == other.items.keys())
    return one is None or bool(first is range and one == other)


def ranked(values: list[Value], budget: Budget) -> list[Value]:
    """Let values pass that can be sorted: all numbers, all texts, or rows of these."""
    size = len(values)
    budget.step(size * max(1, size.bit_length()))
    first = values[0] if values else None
    if type(first) in NUMBERS:
        alike = all(type(value) in NUMBERS for value in values)
    elif type(first) is str:
        alike = all(type(value) is str for value in values)
        if alike:
            budget.step(sum(map(len, values)) * max(1, size.bit_length()) >> 8)
    else:
        alike = type(first) in (tuple, list) and all(type(v) is type(first) for v in values)
        if alike:
            for column in range(max(map(len, values))):
                budget.step(size)
                _flat(values, column)
                ranked([value[column] for value in values if len(value) > column], budget)
    if values and not alike:
        odd = next((v for v in values if type(v) is not type(first)), first)
        raise ProgramError(f"{kind(first)} and {kind(odd)} cannot be put in order")
    return values


def _flat(values: list[Value], column: int) -> None:
    """Refuse rows whose columns are rows themselves: their order is nobody's question."""
    if any(len(v) > column and type(v[column]) in (list, tuple) for v in values):
        raise ProgramError("lists inside lists cannot be put in order")


def size(value: Value, seen: set[int], most: int) -> int:
    """Return the bytes of a value and all in it, each once; over `most` if it cannot be kept.

    What is nested too deeply cannot, and an answer that never came.
    """
    left, total = [(value, 0)], 0
    while left and total <= most:
        one, depth = left.pop()
        if depth > DEEPEST or type(one) is Pending:
            return most + 1
        total += 56 + (4 * len(one) if type(one) is str else 0)
        if type(one) is Match:
            left += [(text, depth) for text in one.texts]
        if type(one) not in CONTAINERS or id(one) in seen:
            continue
        seen.add(id(one))
        inside = list(one.items) if type(one) is Set else list(one)
        inside += list(one.values()) if type(one) is dict else []
        left += [(item, depth + 1) for item in inside]
    return total


def copied(value: Value, memo: dict[int, Value]) -> Value:
    """Copy a value that `size` has measured; what was shared stays shared."""
    if type(value) not in CONTAINERS:
        return value
    if id(value) in memo:
        return memo[id(value)]
    if type(value) is list:
        new: Value = []
        memo[id(value)] = new
        new.extend(copied(item, memo) for item in value)
    elif type(value) is dict:
        new = {}
        memo[id(value)] = new
        new.update((k, copied(v, memo)) for k, v in value.items())
    elif type(value) is Set:
        new = Set(value.items)
    else:
        new = tuple(copied(item, memo) for item in value)
    memo[id(value)] = new
    return new

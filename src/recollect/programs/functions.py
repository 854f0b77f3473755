"""The functions of the language. Each takes its arguments as they are and counts what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from recollect.programs.budget import Budget, ProgramError
from recollect.programs.operators import add, contains
from recollect.programs.showing import shown, written
from recollect.programs.values import (
    NUMBERS,
    Pending,
    Set,
    Value,
    equal,
    items,
    key,
    kind,
    number,
    ranked,
    text_of,
    truth,
    whole,
)

Function = Callable[..., Value]
"""Called with the budget, then the program's arguments."""
Key = Callable[[Value], Value]
_NOTHING: Any = object()


def length(budget: Budget, value: Value) -> int:
    """Count what is in a value."""
    if type(value) is Set:
        return len(value.items)
    if type(value) not in (str, list, dict, tuple, range):
        raise ProgramError(f"{kind(value)} has no length")
    return len(value)


def total(budget: Budget, values: Value, start: Value = 0) -> Value:
    """Add values up."""
    found = start
    for value in items(values, budget):
        budget.step()
        found = add(found, value, budget)
    return found


def _listed(budget: Budget, values: Sequence[Value]) -> list[Value]:
    return items(values[0], budget) if len(values) == 1 else list(values)


def _keyed(budget: Budget, found: list[Value], by: Key | None) -> list[Value]:
    if by is None:
        return ranked(found, budget)
    return ranked([by(value) for value in found], budget)


def smallest(
    budget: Budget, *values: Value, key: Key | None = None, default: Value = _NOTHING
) -> Value:
    """Return the smallest value, the first of equal ones."""
    return _extreme(budget, values, key, default, min)


def largest(
    budget: Budget, *values: Value, key: Key | None = None, default: Value = _NOTHING
) -> Value:
    """Return the largest value, the first of equal ones."""
    return _extreme(budget, values, key, default, max)


def _extreme(
    budget: Budget,
    values: Sequence[Value],
    by: Key | None,
    default: Value,
    pick: Callable[..., int],
) -> Value:
    found = _listed(budget, values)
    if not found:
        if default is _NOTHING:
            raise ProgramError("there is nothing to choose from")
        return default
    keys = _keyed(budget, found, by)
    return found[pick(range(len(keys)), key=keys.__getitem__)]


def in_order(
    budget: Budget, values: Value, *, key: Key | None = None, reverse: Value = False
) -> list[Value]:
    """Sort values; equal ones stay in their order."""
    found = items(values, budget)
    keys = _keyed(budget, found, key)
    budget.take(16 * len(found))
    backwards = truth(reverse)
    order = sorted(range(len(found)), key=keys.__getitem__, reverse=backwards)
    return [found[i] for i in order]


def count(budget: Budget, values: Value, item: Value = _NOTHING) -> Value:
    """Count an item in a text or a list; without an item, how often each comes, most first."""
    if item is not _NOTHING:
        if type(values) is str:
            wanted = text_of(item, "what is counted in a text")
            budget.step(len(values) >> 4)
            return values.count(wanted) if wanted else len(values) + 1
        return sum(equal(item, one, budget) for one in items(values, budget))
    found: dict[Value, int] = {}
    listed = items(values, budget)
    budget.step(len(listed) >> 1)
    budget.take(100 * len(listed))
    for one in listed:
        key(one, budget)
        found[one] = found.get(one, 0) + 1
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def find(budget: Budget, text: Value, wanted: Value) -> list[int]:
    """Return every place where a text is found in another."""
    text, wanted = text_of(text, "what is searched"), text_of(wanted, "what is sought")
    if not wanted:
        raise ProgramError("there is no text to look for")
    found: list[int] = []
    at = text.find(wanted)
    budget.step(len(text) >> 4)
    while at >= 0:
        budget.take(40)
        budget.step()
        found.append(at)
        at = text.find(wanted, at + len(wanted))
    return found


def split(budget: Budget, text: Value, by: Value = None) -> list[str]:
    """Cut a text at a separator, at spaces, or into pieces of about this many characters."""
    text = text_of(text, "what is cut")
    budget.take(8 * len(text))
    if by is None:
        budget.step(len(text) >> 3)
        found = text.split()
    elif type(by) is str:
        if not by:
            raise ProgramError("the separator is empty")
        found = text.split(by)
    else:
        found = _pieces(budget, text, whole(by, "the size of the pieces"))
    budget.take(56 * len(found))
    return found


def _pieces(budget: Budget, text: str, size: int) -> list[str]:
    """Cut a text after a space or a line end where one is near."""
    if size < 1:
        raise ProgramError("pieces have 1 character or more")
    found, at = [], 0
    while at < len(text):
        budget.step()
        budget.take(56)
        end = at + size
        if end < len(text):
            near = max(text.rfind("\n", at, end), text.rfind(" ", at, end))
            end = near + 1 if near > at else end
        found.append(text[at:end])
        at = end
    return found


def window(budget: Budget, text: Value, at: Value, size: Value = 200) -> str:
    """Return the part of a text around a place."""
    text, at = text_of(text, "the text"), whole(at, "the place")
    half = max(0, whole(size, "the size")) // 2
    low, high = max(0, at - half), max(0, min(len(text), at + half))
    budget.take(4 * max(0, high - low))
    return text[low:high]


def numbers(budget: Budget, *bounds: Value) -> range:
    """Return a range."""
    if not 1 <= len(bounds) <= 3:
        raise ProgramError("range takes one to three whole numbers")
    found = [whole(bound, "a bound of the range") for bound in bounds]
    if len(found) == 3 and found[2] == 0:
        raise ProgramError("a step of 0 leads nowhere")
    return range(*found)


def paired(budget: Budget, *values: Value) -> list[Value]:
    """Go through several lists side by side, as far as the shortest."""
    found = [items(value, budget) for value in values]
    budget.take((64 + 8 * len(found)) * min(map(len, found), default=0))
    return list(zip(*found, strict=False))


def numbered(budget: Budget, values: Value, start: Value = 0) -> list[Value]:
    """Number values."""
    found = items(values, budget)
    budget.take(100 * len(found))
    return list(enumerate(found, whole(start, "the start")))


def backwards(budget: Budget, values: Value) -> list[Value]:
    """Return values from the last to the first."""
    return items(values, budget)[::-1]


def whole_of(budget: Budget, value: Value = 0) -> int:
    """Read a whole number, or cut off a fraction."""
    if type(value) is str:
        plain = value.strip().replace(",", "")
        if len(plain) > 20 or not plain.lstrip("+-").isdecimal() or plain.count("-") > 1:
            raise ProgramError(f"{value[:40]!r} is no whole number")
        value = int(plain) if plain.lstrip("+-").isascii() else 0
    if type(value) not in NUMBERS:
        raise ProgramError(f"{kind(value)} is no number")
    if value != value or value in (float("inf"), float("-inf")):
        raise ProgramError("there is no whole number for this")
    return int(number(int(value)))


def decimal_of(budget: Budget, value: Value = 0.0) -> float:
    """Read a number."""
    if type(value) is str:
        plain = value.strip().replace(",", "").lstrip("$")
        try:
            return float(plain[:40]) if len(plain) <= 40 and "_" not in plain else float("x")
        except ValueError:
            raise ProgramError(f"{value[:40]!r} is no number") from None
    if type(value) not in NUMBERS:
        raise ProgramError(f"{kind(value)} is no number")
    return float(value)


def rounded(budget: Budget, value: Value, digits: Value = None) -> Value:
    """Round a number."""
    if type(value) not in NUMBERS:
        raise ProgramError(f"{kind(value)} is no number")
    places = None if digits is None else whole(digits, "the digits")
    if places is not None and not -20 <= places <= 20:
        raise ProgramError("digits are from -20 to 20")
    if value != value or abs(value) > 1e18:
        raise ProgramError("the number is too large to be rounded")
    return number(round(value, places))


def absolute(budget: Budget, value: Value) -> Value:
    """Drop a sign."""
    if type(value) not in NUMBERS:
        raise ProgramError(f"{kind(value)} is no number")
    return number(abs(value))


def mapping(budget: Budget, values: Value = None) -> dict[Value, Value]:
    """Copy a dict, or make one of pairs."""
    if values is None:
        return {}
    if type(values) is dict:
        budget.take(64 * len(values))
        return dict(values)
    found: dict[Value, Value] = {}
    for pair in items(values, budget):
        if type(pair) not in (list, tuple) or len(pair) != 2:
            raise ProgramError("a dict is made of pairs")
        budget.take(100)
        found[key(pair[0], budget)] = pair[1]
    return found


def members(budget: Budget, values: Value = ()) -> Set:
    """Make a set."""
    found = items(values, budget)
    budget.take(100 * len(found))
    return Set(key(value, budget) for value in found)


def every(budget: Budget, values: Value) -> bool:
    """Tell whether all values count as true."""
    return all(truth(value) for value in items(values, budget))


def some(budget: Budget, values: Value) -> bool:
    """Tell whether a value counts as true."""
    return any(truth(value) for value in items(values, budget))


def listed(budget: Budget, values: Value = ()) -> list[Value]:
    """Make a list."""
    return items(values, budget)


def fixed(budget: Budget, values: Value = ()) -> tuple[Value, ...]:
    """Make a tuple."""
    return tuple(items(values, budget))


def is_in(budget: Budget, item: Value, inside: Value) -> bool:
    """Tell whether a value holds another."""
    return contains(item, inside, budget)


def as_text(budget: Budget, value: Value = "") -> str:
    """Write a value."""
    if type(value) is Pending:
        kind(value)
    return shown(value, budget)


def as_written(budget: Budget, value: Value) -> str:
    """Write a value with its quotes."""
    return written(value, budget)


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "len": length,
        "sum": total,
        "min": smallest,
        "max": largest,
        "sorted": in_order,
        "count": count,
        "find": find,
        "split": split,
        "window": window,
        "range": numbers,
        "zip": paired,
        "enumerate": numbered,
        "reversed": backwards,
        "int": whole_of,
        "float": decimal_of,
        "round": rounded,
        "abs": absolute,
        "dict": mapping,
        "set": members,
        "list": listed,
        "tuple": fixed,
        "str": as_text,
        "repr": as_written,
        "any": some,
        "all": every,
    }
)

"""The methods of values: a list of safe ones, by the exact type of the value. There is no other
attribute in the language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from recollect.programs.budget import Budget, ProgramError
from recollect.programs.functions import count, in_order, split
from recollect.programs.patterns import group
from recollect.programs.values import Match, Set, Value, equal, items, key, kind, text_of, whole

Method = Callable[..., Value]
"""Called with the budget and the value, then the program's arguments."""
WIDEST = 1000


def _same(name: str, grows: int = 1) -> Method:
    """Take over a method of texts that needs no arguments."""
    method = getattr(str, name)

    def call(budget: Budget, text: str) -> Value:
        budget.take(4 * grows * len(text))
        return method(text)

    return call


def _stripped(name: str) -> Method:
    method = getattr(str, name)

    def call(budget: Budget, text: str, chars: Value = None) -> Value:
        budget.take(4 * len(text))
        if chars is not None:
            budget.step(len(text) * min(64, len(text_of(chars, "what is stripped"))) >> 6)
        return method(text, chars)

    return call


def _affix(name: str) -> Method:
    method = getattr(str, name)

    def call(budget: Budget, text: str, wanted: Value) -> Value:
        options = wanted if type(wanted) is tuple else (wanted,)
        for option in options:
            text_of(option, "what is looked for")
            budget.step()
        return method(text, tuple(options))

    return call


def _padded(name: str) -> Method:
    method = getattr(str, name)

    def call(budget: Budget, text: str, width: Value) -> Value:
        if whole(width, "the width") > WIDEST:
            raise ProgramError(f"a width is at most {WIDEST}")
        budget.take(4 * (len(text) + WIDEST))
        return method(text, width)

    return call


def _joined(budget: Budget, text: str, values: Value) -> str:
    pieces = [text_of(value, "what is joined") for value in items(values, budget)]
    budget.take(4 * (sum(map(len, pieces)) + len(text) * len(pieces)))
    return text.join(pieces)


def _replaced(budget: Budget, text: str, old: Value, new: Value) -> str:
    old, new = text_of(old, "what is replaced"), text_of(new, "what is put in place")
    budget.step(len(text) >> 3)
    times = text.count(old)
    budget.take(4 * max(len(text), len(text) + times * (len(new) - len(old))))
    return text.replace(old, new)


def _found(budget: Budget, text: str, wanted: Value, start: Value = 0) -> int:
    at = whole(start, "the start")
    budget.step(len(text) >> 4)
    return text.find(text_of(wanted, "what is looked for"), at)


def _found_last(budget: Budget, text: str, wanted: Value) -> int:
    wanted = text_of(wanted, "what is looked for")
    budget.step(len(text) * min(len(text), len(wanted)) >> 6)  # no linear search from the end
    return text.rfind(wanted)


def _divided(budget: Budget, text: str, by: Value) -> Value:
    budget.take(4 * len(text))
    by = text_of(by, "the separator")
    if not by:
        raise ProgramError("the separator is empty")
    return text.partition(by)


def _lines(budget: Budget, text: str) -> list[str]:
    budget.take(8 * len(text))
    found = text.splitlines()
    budget.take(56 * len(found))
    return found


_TEXT: dict[str, Method] = {
    **{name: _same(name) for name in ("isdigit", "isalpha", "isalnum", "isupper", "islower")},
    **{name: _same(name) for name in ("isspace", "isnumeric", "isdecimal")},
    **{name: _same(name, 3) for name in ("lower", "upper", "title", "capitalize", "casefold")},
    **{name: _stripped(name) for name in ("strip", "lstrip", "rstrip")},
    **{name: _affix(name) for name in ("startswith", "endswith")},
    **{name: _padded(name) for name in ("ljust", "rjust", "center", "zfill")},
    "split": split,
    "splitlines": _lines,
    "partition": _divided,
    "join": _joined,
    "replace": _replaced,
    "find": _found,
    "rfind": _found_last,
    "count": lambda budget, text, wanted: count(budget, text, wanted),
}


def _append(budget: Budget, values: list[Value], value: Value) -> None:
    budget.take(16)
    values.append(value)


def _extend(budget: Budget, values: list[Value], more: Value) -> None:
    found = items(more, budget)
    budget.take(16 * len(found))
    values.extend(found)


def _insert(budget: Budget, values: list[Value], at: Value, value: Value) -> None:
    budget.take(16)
    budget.step(len(values) >> 6)
    values.insert(whole(at, "the place"), value)


def _pop(budget: Budget, values: list[Value], at: Value = -1) -> Value:
    place = whole(at, "the place")
    if not -len(values) <= place < len(values):
        raise ProgramError(f"the index {place} is outside a list of {len(values)}")
    budget.step(len(values) >> 6)
    return values.pop(place)


def _index(budget: Budget, values: Value, value: Value) -> int:
    for i, one in enumerate(values):
        if equal(one, value, budget):
            return i
    raise ProgramError("the list does not hold this")


def _sort(budget: Budget, values: list[Value], **how: Value) -> None:
    values[:] = in_order(budget, values, **how)


def _reverse(budget: Budget, values: list[Value]) -> None:
    budget.step(len(values) >> 4)
    values.reverse()


def _copy(budget: Budget, values: list[Value]) -> list[Value]:
    return items(values, budget)


_LIST: dict[str, Method] = {
    "append": _append,
    "extend": _extend,
    "insert": _insert,
    "pop": _pop,
    "index": _index,
    "sort": _sort,
    "reverse": _reverse,
    "copy": _copy,
    "count": lambda budget, values, value: count(budget, values, value),
}


def _get(budget: Budget, values: dict[Value, Value], name: Value, default: Value = None) -> Value:
    return values.get(key(name, budget), default)


def _setdefault(
    budget: Budget, values: dict[Value, Value], name: Value, default: Value = None
) -> Value:
    budget.take(100)
    return values.setdefault(key(name, budget), default)


def _pairs(budget: Budget, values: dict[Value, Value]) -> list[Value]:
    budget.take(72 * len(values))
    return list(values.items())


def _values(budget: Budget, values: dict[Value, Value]) -> list[Value]:
    budget.take(8 * len(values))
    return list(values.values())


def _update(budget: Budget, values: dict[Value, Value], more: Value) -> None:
    if type(more) is not dict:
        raise ProgramError(f"a dict cannot be updated with {kind(more)}")
    budget.take(100 * len(more))
    values.update(more)


def _add(budget: Budget, values: Set, value: Value) -> None:
    budget.take(100)
    values.items[key(value, budget)] = None


_METHODS: Mapping[type, Mapping[str, Method]] = MappingProxyType(
    {
        str: _TEXT,
        list: _LIST,
        tuple: {"index": _index, "count": _LIST["count"]},
        dict: {
            "get": _get,
            "setdefault": _setdefault,
            "items": _pairs,
            "keys": lambda budget, values: items(values, budget),
            "values": _values,
            "update": _update,
        },
        Set: {"add": _add},
        Match: {
            "group": lambda budget, match, number=0: group(match, number),
            "groups": lambda budget, match: tuple(match.texts[1:]),
            "start": lambda budget, match: match.spans[0][0],
            "end": lambda budget, match: match.spans[0][1],
        },
    }
)


def method(value: Value, name: str) -> Method:
    """Return a method of a value; there are no others."""
    found = _METHODS.get(type(value), {}).get(name)
    if found is None:
        raise ProgramError(f"{kind(value)} has no .{name[:40]}")
    return found

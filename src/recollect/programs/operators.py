"""Operators: what may be added, multiplied, compared and indexed, and what that costs."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType

from recollect.programs.budget import LARGEST, Budget, ProgramError
from recollect.programs.values import (
    NUMBERS,
    Match,
    Set,
    Value,
    equal,
    key,
    kind,
    number,
    ranked,
    whole,
)

Binary = Callable[[Value, Value, Budget], Value]


def add(one: Value, other: Value, budget: Budget) -> Value:
    """one + other"""
    first = type(one)
    if first in NUMBERS and type(other) in NUMBERS:
        return number(one + other)
    if first is type(other) and first is str:
        budget.take(4 * (len(one) + len(other)))
        return one + other
    if first is type(other) and first in (list, tuple):
        budget.take(8 * (len(one) + len(other)) + 56)
        return one + other
    raise ProgramError(f"{kind(one)} and {kind(other)} cannot be added")


def subtract(one: Value, other: Value, budget: Budget) -> Value:
    """one - other"""
    if type(one) is Set and type(other) is Set:
        return _members(one, budget, lambda item: item not in other.items)
    return _numbers(operator.sub, one, other, "subtracted")


def multiply(one: Value, other: Value, budget: Budget) -> Value:
    """one * other"""
    if type(one) in NUMBERS and type(other) in (str, list, tuple):
        one, other = other, one
    if type(one) in (str, list, tuple) and type(other) in (int, bool):
        times = max(0, int(other))
        budget.take((4 if type(one) is str else 8) * len(one) * times + 56)
        return one * times
    return _numbers(operator.mul, one, other, "multiplied")


def power(one: Value, other: Value, budget: Budget) -> Value:
    """one ** other"""
    if type(one) in (int, bool) and type(other) in (int, bool):
        if other > 0 and int(one).bit_length() * other > 128:
            raise ProgramError("a number is too large: whole numbers stay below 2**60")
        if other < -64:
            raise ProgramError("a power is too small")
    return _numbers(operator.pow, one, other, "raised to a power")


def modulo(one: Value, other: Value, budget: Budget) -> Value:
    """one % other; texts are formatted by f-strings only."""
    if type(one) is str:
        raise ProgramError('texts are formatted with f"...{x}...", not with %')
    return _numbers(operator.mod, one, other, "divided")


def shift(by: Callable[[int, int], int]) -> Binary:
    """Make << or >>."""

    def shifted(one: Value, other: Value, budget: Budget) -> Value:
        places = whole(other, "the shift")
        if not 0 <= places < 64:
            raise ProgramError("a shift is from 0 to 63")
        return number(by(whole(one, "what is shifted"), places))

    return shifted


def union(one: Value, other: Value, budget: Budget) -> Value:
    """one | other"""
    if type(one) is Set and type(other) is Set:
        budget.take(64 * (len(one.items) + len(other.items)))
        return Set([*one.items, *other.items])
    if type(one) is dict and type(other) is dict:
        budget.take(64 * (len(one) + len(other)))
        return {**one, **other}
    return _numbers(operator.or_, one, other, "joined by |", (int, bool))


def common(one: Value, other: Value, budget: Budget) -> Value:
    """one & other"""
    if type(one) is Set and type(other) is Set:
        return _members(one, budget, lambda item: item in other.items)
    return _numbers(operator.and_, one, other, "joined by &", (int, bool))


def either(one: Value, other: Value, budget: Budget) -> Value:
    """one ^ other"""
    return _numbers(operator.xor, one, other, "joined by ^", (int, bool))


def _quotient(how: Callable[[Value, Value], Value]) -> Binary:
    return lambda one, other, budget: _numbers(how, one, other, "divided")


BINARY: Mapping[type, Binary] = MappingProxyType(
    {
        ast.Add: add,
        ast.Sub: subtract,
        ast.Mult: multiply,
        ast.Div: _quotient(operator.truediv),
        ast.FloorDiv: _quotient(operator.floordiv),
        ast.Mod: modulo,
        ast.Pow: power,
        ast.LShift: shift(operator.lshift),
        ast.RShift: shift(operator.rshift),
        ast.BitOr: union,
        ast.BitAnd: common,
        ast.BitXor: either,
    }
)


def _members(one: Set, budget: Budget, keep: Callable[[Value], bool]) -> Set:
    budget.take(64 * len(one.items))
    return Set(item for item in one.items if keep(item))


def _numbers(
    how: Callable[[Value, Value], Value],
    one: Value,
    other: Value,
    what: str,
    kinds: tuple[type, ...] = NUMBERS,
) -> Value:
    if type(one) not in kinds or type(other) not in kinds:
        raise ProgramError(f"{kind(one)} and {kind(other)} cannot be {what}")
    try:
        return number(how(one, other))
    except ZeroDivisionError:
        raise ProgramError("division by zero") from None
    except OverflowError:
        raise ProgramError("a number is too large") from None


def contains(item: Value, inside: Value, budget: Budget) -> bool:
    """item in inside"""
    if type(inside) is str and type(item) is str:
        budget.step(len(inside) >> 4)
        return item in inside
    if type(inside) in (dict, Set):
        found = inside if type(inside) is dict else inside.items
        return key(item, budget) in found
    if type(inside) in (list, tuple):
        return any(equal(item, one, budget) for one in inside)
    if type(inside) is range and type(item) in (int, bool):
        return item in inside
    raise ProgramError(f"{kind(inside)} cannot hold {kind(item)}")


_ORDER: Mapping[type, Callable[[Value, Value], bool]] = MappingProxyType(
    {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}
)


def compare(how: ast.cmpop, one: Value, other: Value, budget: Budget) -> bool:
    """Compare two values in any of the ways that Python has."""
    if isinstance(how, ast.Eq | ast.NotEq):
        return equal(one, other, budget) is isinstance(how, ast.Eq)
    if isinstance(how, ast.In | ast.NotIn):
        return contains(one, other, budget) is isinstance(how, ast.In)
    if isinstance(how, ast.Is | ast.IsNot):
        if not any(value is None or type(value) is bool for value in (one, other)):
            raise ProgramError("`is` is for None, True and False; use == for anything else")
        kind(one), kind(other)  # waits for answers that have not come
        return (one is other) is isinstance(how, ast.Is)
    ranked([one, other], budget)
    return bool(_ORDER[type(how)](one, other))


def item(value: Value, index: Value, budget: Budget) -> Value:
    """value[index]"""
    if type(value) is dict:
        if key(index, budget) not in value:
            raise ProgramError(f"the dict has no key {str(index)[:40]!r}")
        return value[index]
    if type(value) is Match:
        value = value.texts
    if type(value) not in (str, list, tuple, range):
        raise ProgramError(f"{kind(value)} has no items to pick")
    at = whole(index, "the index")
    if not -len(value) <= at < len(value):
        raise ProgramError(f"the index {at} is outside {kind(value)} of {len(value)}")
    return value[at]


def part(value: Value, low: Value, high: Value, step: Value, budget: Budget) -> Value:
    """value[low:high:step]"""
    if type(value) not in (str, list, tuple, range):
        raise ProgramError(f"{kind(value)} cannot be cut")
    bounds = [None if x is None else whole(x, "a bound") for x in (low, high, step)]
    if bounds[2] == 0:
        raise ProgramError("a step of 0 leads nowhere")
    cut = slice(*bounds)
    if type(value) is not range:
        count = len(range(*cut.indices(len(value))))
        budget.take((4 if type(value) is str else 8) * count + 56)
    return value[cut]


def negative(value: Value) -> Value:
    """-value"""
    if type(value) not in NUMBERS:
        raise ProgramError(f"{kind(value)} has no opposite")
    return number(-value)


def inside(value: int) -> bool:
    """Tell whether a whole number is allowed."""
    return -LARGEST < value < LARGEST

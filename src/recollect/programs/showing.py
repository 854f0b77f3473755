"""Values as text: what a program prints, what it formats, and what it answers with."""

from __future__ import annotations

import re

from recollect.programs.budget import Budget, ProgramError
from recollect.programs.values import DEEPEST, Match, Set, Value, kind

_SPEC = re.compile(r"(?:([<>^])?(0?)([1-9]\d{0,2})?)?(,)?(?:\.(\d{1,2}))?([dfs%])?")


def shown(value: Value, budget: Budget) -> str:
    """Write a value as `str` does."""
    return value if type(value) is str else written(value, budget)


def written(value: Value, budget: Budget, depth: int = 0) -> str:
    """Write a value as `repr` does."""
    budget.step()
    if depth > DEEPEST:
        raise ProgramError(f"lists are written at most {DEEPEST} deep")
    if type(value) is str:
        budget.take(2 * len(value))
        return repr(value)
    if value is None or type(value) in (bool, int, float):
        return repr(value)
    if type(value) is Match:
        return written(value.texts[0], budget, depth)
    if type(value) is range:
        return f"range({value.start}, {value.stop}" + (
            f", {value.step})" if value.step != 1 else ")"
        )
    if type(value) is dict:
        inside = [
            f"{written(k, budget, depth + 1)}: {written(v, budget, depth + 1)}"
            for k, v in value.items()
        ]
    elif type(value) in (list, tuple, Set):
        inside = [
            written(item, budget, depth + 1)
            for item in (value.items if type(value) is Set else value)
        ]
    else:
        raise ProgramError(f"{kind(value)} cannot be written")
    budget.take(sum(map(len, inside)) + 2 * len(inside))
    opened, closed = "[]" if type(value) is list else "()" if type(value) is tuple else "{}"
    tail = "," if type(value) is tuple and len(inside) == 1 else ""
    return f"{opened}{', '.join(inside)}{tail}{closed}"


def formatted(value: Value, spec: str, budget: Budget) -> str:
    """Write a value as an f-string does, with a width of at most 999."""
    if not spec:
        return shown(value, budget)
    found = _SPEC.fullmatch(spec)
    if found is None:
        raise ProgramError(f"the format {spec[:20]!r} is not known; {{x:.2f}} and {{x:>8}} are")
    align, zero, width, comma, digits, form = found.groups()
    number = type(value) in (int, float)
    if (form or comma) and form != "s" and not number:
        raise ProgramError(f"{kind(value)} cannot be written as a number")
    if form == "d" and type(value) is not int:
        raise ProgramError("only whole numbers can be written with d")
    plain = f"{comma or ''}{'.' + digits if digits else ''}{form or ''}"
    if number and form != "s":
        if digits and not form and type(value) is int:
            raise ProgramError("a whole number has no digits to cut: use .2f")
        text = format(value, plain)
    else:
        text = shown(value, budget)
        text = text[: int(digits)] if digits else text
    size = int(width or 0)
    budget.take(len(text) + size)
    if zero and number and not align:
        return text.zfill(size)
    return {"<": text.ljust, ">": text.rjust, "^": text.center}[align or ("<>"[number])](size)


def answered(value: Value, budget: Budget) -> str:
    """Write an answer: several values are separated by commas."""
    if type(value) in (list, tuple, Set):
        inside = [shown(item, budget) for item in (value.items if type(value) is Set else value)]
        budget.take(sum(map(len, inside)) + 2 * len(inside))
        return ", ".join(inside)
    return "" if value is None else shown(value, budget)


def cut(text: str, most: int) -> str:
    """Keep the beginning of a result, and say how much more there is."""
    if len(text) <= most:
        return text
    return f"{text[:most]}... ({len(text) - most} more characters)"

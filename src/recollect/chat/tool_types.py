"""The types a tool's argument can have: as JSON schema, and as checks of what a model sent.

Few on purpose: texts, numbers, flags, choices, and lists, dicts and optionals of these.
"""

from __future__ import annotations

import json
import math
import types
from typing import Any, Literal, Union, get_args, get_origin


class WrongKind(Exception):
    """What an argument must be, and what it is instead."""


def excerpt(text: str, limit: int = 60) -> str:
    """Quote the start of a text."""
    return repr(text if len(text) <= limit else text[:limit] + "...")


_PLAIN: dict[Any, tuple[str, str]] = {
    str: ("string", "a text"),
    int: ("integer", "a whole number"),
    float: ("number", "a number"),
    bool: ("boolean", "true or false"),
}


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return {"type": _PLAIN[kind][0]}
    if origin is Literal and len({type(value) for value in inner}) == 1:
        return {**schema_of(type(inner[0])), "enum": list(inner)}
    if origin is list:
        return {"type": "array", "items": schema_of(inner[0])}
    if origin is dict and inner[0] is str:
        return {"type": "object", "additionalProperties": schema_of(inner[1])}
    if (own := _optional(kind)) is not None:
        return schema_of(own)
    raise TypeError(f"a tool's parameter cannot have the type {kind}")


def _optional(kind: Any) -> Any:
    """Return T of `T | None`, or None."""
    if get_origin(kind) not in (Union, types.UnionType):
        return None
    inner = [one for one in get_args(kind) if one is not type(None)]
    return inner[0] if len(inner) == 1 and len(get_args(kind)) == 2 else None


def check(kind: Any, value: Any) -> Any:
    """Return a JSON value as a type wants it; a WrongKind says what it must be."""
    origin, inner = get_origin(kind), get_args(kind)
    if (own := _optional(kind)) is not None:
        return None if value is None else check(own, value)
    if origin is Literal:
        # 1 == True in Python, but not here.
        if any(value == choice and type(value) is type(choice) for choice in inner):
            return value
        raise WrongKind(f"one of {', '.join(map(repr, inner))}, not {_shown(value)}")
    if origin in (list, dict) and isinstance(value, origin):
        try:
            if isinstance(value, list):
                return [check(inner[0], item) for item in value]
            return {key: check(inner[1], item) for key, item in value.items()}
        except WrongKind as error:
            raise WrongKind(
                f"{'a list' if origin is list else 'an object'}, each {error}"
            ) from None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 1 << 1023 else math.inf
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is kind and (kind is not float or math.isfinite(value)):
        return value
    raise WrongKind(f"{_named(kind)}, not {_shown(value)}")


def _named(kind: Any) -> str:
    if kind in _PLAIN:
        return _PLAIN[kind][1]
    return "a list" if get_origin(kind) is list else "an object"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return excerpt(value)
    if isinstance(value, int) and abs(value) >= 1 << 63:
        return "so large a number"  # Python refuses to write the largest ones
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:60] + "..."


def read_text(kind: Any, text: Any) -> Any:
    """Read an argument that was written as bare text; what cannot be read is left as it is."""
    kind = _optional(kind) or kind
    if kind is str or not isinstance(text, str):
        return text
    if get_origin(kind) is Literal and isinstance(get_args(kind)[0], str):
        return text.strip()
    try:
        return json.loads(text.strip().lower() if kind is bool else text)
    except (ValueError, RecursionError):
        return text

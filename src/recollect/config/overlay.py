"""Lay a table of settings over a frozen dataclass, with the same checks as on the command line."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from recollect.errors import UserError

T = TypeVar("T")
Where = Callable[[str], str]
"""Says where the setting of a dotted name stands, for people."""


def overlay(config: T, table: Mapping[str, Any], where: Where, prefix: str = "") -> T:
    """Return `config` with what the table names replaced."""
    names = [field.name for field in dataclasses.fields(config)]  # type: ignore[arg-type]
    changes = {}
    for name, value in table.items():
        dotted, key = prefix + name, name.replace("-", "_")
        if key not in names:
            close = difflib.get_close_matches(key, names, 3) or names
            raise UserError(
                f"{where(dotted)}: there is no setting {dotted}",
                f"choose from {', '.join(prefix + one for one in close)}",
            )
        current = getattr(config, key)
        if not dataclasses.is_dataclass(current):
            changes[key] = _checked(get_type_hints(type(config))[key], value, where, dotted)
        elif isinstance(value, Mapping):
            changes[key] = overlay(current, value, where, f"{dotted}.")
        else:
            inner = dataclasses.fields(current)[0].name
            raise UserError(
                f"{where(dotted)}: {dotted} is {value!r}, but it has settings of its own",
                f"set one of them, such as {dotted}.{inner}",
            )
    try:
        return dataclasses.replace(config, **changes)  # type: ignore[type-var]
    except UserError as error:
        raise UserError(f"{where('')}: {error.what}", error.fix) from error


def _checked(kind: Any, value: Any, where: Where, dotted: str) -> Any:
    """Return the value as its type, or say what it should be."""
    try:
        # As JSON: lists become tuples and texts paths, but "5" does not become 5.
        return TypeAdapter(kind).validate_json(json.dumps(value, default=str), strict=True)
    except ValidationError as error:
        wanted = error.errors()[0]["msg"].removeprefix("Input ")
        raise UserError(f"{where(dotted)}: {dotted} is {value!r}", f"{dotted} {wanted}") from error

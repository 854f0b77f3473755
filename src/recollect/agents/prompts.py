"""Prompts: texts with named fields in braces, filled with text or with tokens."""

from __future__ import annotations

import re
from collections.abc import Collection

from recollect.chat.rendering import Message, Part, user
from recollect.errors import UserError

BOXED = "put the answer in \\boxed{}"
"""How every agent asks for answers, so that they compare."""


def solve_from(source: str) -> str:
    """Say what an answer is to be found in, and how it is to be given."""
    return f"Solve the problem from {source} and {BOXED}."


def fill(template: str, **fields: Part) -> Message:
    """Make a user message of a text, with the given parts where it names them.

    Other braces stay as they are: `\\boxed{}` is no field.
    """
    pieces = _named(fields).split(template)  # text and field names in turn
    parts: list[Part] = [fields[p] if i % 2 else p for i, p in enumerate(pieces)]
    return user(*(part for part in parts if len(part)))


def check_fields(name: str, text: str, needed: set[str], allowed: Collection[str] = ()) -> None:
    """Refuse a prompt that lacks a field it needs, or shows one it is not given."""
    known = {"problem", "question", "memory", "chunk", "recalled", "notes"}
    found = set(_named(known).findall(text))
    if not needed <= found <= needed.union(allowed):
        raise UserError(
            f"the prompt {name} shows {_braced(found)}, but needs {_braced(needed)}",
            f"set --agent.prompts.{name.replace('_', '-')} to a text with these fields",
        )


def _named(fields: Collection[str]) -> re.Pattern[str]:
    return re.compile(r"\{(" + "|".join(map(re.escape, fields)) + r")\}")


def _braced(names: set[str]) -> str:
    return " and ".join("{" + name + "}" for name in sorted(names)) or "no field"

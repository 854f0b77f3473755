"""Prompts: texts with named fields in braces, filled with text or with tokens."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

from recollect.chat.rendering import Message, Part, user
from recollect.errors import UserError
from recollect.files import read_file

BOXED = "put the answer in \\boxed{}"
"""How every agent asks for answers, so that they compare."""


def solve_from(source: str) -> str:
    """Say what an answer is to be found in, and how it is to be given."""
    return f"Solve the problem from {source} and {BOXED}."


def fill(template: str, **fields: Part) -> Message:
    """Make a user message of a text, with the given parts where it names them.

    Other braces stay as they are: `\\boxed{}` is no field.
    """
    pieces = _cut(template, tuple(fields))
    parts: list[Part] = [fields[p] if i % 2 else p for i, p in enumerate(pieces)]
    return user(*[part for part in parts if len(part)])


def check_fields(name: str, text: str, needed: set[str], allowed: Collection[str] = ()) -> None:
    """Refuse a prompt that lacks a field it needs, or shows one it is not given."""
    known = {"problem", "question", "memory", "chunk", "recalled", "notes"}
    found = set(_named(tuple(sorted(known))).findall(text))
    if not needed <= found <= needed.union(allowed):
        raise UserError(
            f"the prompt {name} shows {_braced(found)}, but needs {_braced(needed)}",
            f"set --agent.prompts.{name.replace('_', '-')} to a text with these fields",
        )


@lru_cache
def read_templates(path: Path) -> dict[str, str]:
    """Return the texts that a file of Python assigns to names; nothing in it is run.

    Such texts are for `str.format`: braces are doubled in them, and MemAgent's {prompt} is what we
    call {problem}.
    """
    try:
        tree = ast.parse(read_file(path.expanduser()))
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(
            f"no prompts can be read from {path}: {error}",
            "git clone https://github.com/BytedTsinghua-SIA/MemAgent and name its file"
            " recurrent/impls/memory.py with --agent.prompts.published",
        ) from None
    found: dict[str, str] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                text = text.replace("{prompt}", "{problem}")
                found[name] = text.replace("{{", "{").replace("}}", "}")
    return found


@lru_cache
def _named(fields: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(r"\{(" + "|".join(map(re.escape, fields)) + r")\}")


@lru_cache
def _cut(template: str, fields: tuple[str, ...]) -> tuple[str, ...]:
    """Return the texts and the names of fields in turn."""
    return tuple(_named(fields).split(template))


def _braced(names: set[str]) -> str:
    return " and ".join("{" + name + "}" for name in sorted(names)) or "no field"

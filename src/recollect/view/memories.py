"""What a memory held after every operation: a text, a bank of notes, a store of entries, or yours.

Replays recorded operations and never refuses one: an operation of a memory that it does not know
adds what it says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.view.stored import Op, Stored

CREATED = re.compile(
    r"^(?:Created|Merged [\w, ]+ into|Split [\w, ]+ into) (memory_\d+(?:, memory_\d+)*)\.$", re.M
)
RESULT = re.compile(r"^\d+\. (memory_\d+) \| (.*?) \| speaker: .*$", re.M)
_TURN = re.compile(r"(?:(.*), )?turn (\d+)")

State = dict[str, str]
"""Texts by name: one without a name for a text memory, else titles or ids."""


@dataclass(frozen=True)
class Edit:
    """An operation with what it made of the memory."""

    op: Op
    made: tuple[str, ...]
    """Names of what it wrote."""
    gone: tuple[str, ...]
    """Names of what it removed or wrote over."""


@dataclass
class Memory:
    """A memory as operations make it."""

    state: State = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    """Which operation wrote what a name holds: its kind and where it was done."""

    def apply(self, op: Op, made: Sequence[str] = ()) -> Edit:
        """Carry out an operation; `made` are the names that the agent was given for new entries."""
        before = dict(self.state)
        self.state = _after(op, self.state, tuple(made))
        written = tuple(n for n, text in self.state.items() if before.get(n) != text)
        gone = tuple(n for n, text in before.items() if self.state.get(n) != text)
        for name in written:
            self.origin[name] = f"{op.kind} in {op.label}" if op.label else op.kind
        return Edit(op, written, gone)

    @property
    def text(self) -> str:
        """The whole memory as one text."""
        return shown_state(self.state)


def shown_state(state: Mapping[str, str]) -> str:
    """Write a memory down: a lone text as it is, entries with their names."""
    if not state.keys() - {""}:
        return state.get("", "")
    return "\n".join(f"[{name}] {text}" if name else text for name, text in state.items())


def _after(op: Op, state: State, made: tuple[str, ...]) -> State:
    data = op.data
    match op.kind:
        case "replace" | "core":
            return {"": _text(data), **{n: t for n, t in state.items() if n}}
        case "recall":
            return state
        case "add" | "update" if "title" in data:
            title, name = str(data["title"]), str(data.get("new_title", data["title"]))
            if title in state:
                return {name if n == title else n: _text(data) if n == title else t
                        for n, t in state.items()}  # fmt: skip
            return state | {name: _text(data)}
        case "add":
            return state | dict.fromkeys(made or (_fresh(state),), _text(data))
        case "update":
            name = str(data.get("id", ""))
            return state | {name: _text(data) or state.get(name, "")}
        case "delete":
            return _without(state, [data.get("title", data.get("id", ""))])
        case "merge":
            kept = _without(state, data.get("ids", ()))
            return kept | dict.fromkeys(made or (_fresh(state),), _text(data))
        case "split":
            texts = [_text(part) for part in data.get("parts", ()) if isinstance(part, Mapping)]
            names = made or tuple(f"{_fresh(state)} {i + 1}" for i in range(len(texts)))
            return _without(state, [data.get("id", "")]) | dict(zip(names, texts, strict=False))
    return state | {op.label or op.kind: _text(data)}


def _without(state: State, names: Sequence[Any]) -> State:
    removed = set(map(str, names))
    return {name: text for name, text in state.items() if name not in removed}


def _fresh(state: State) -> str:
    return f"new {1 + sum(name.startswith('new ') for name in state)}"


def _text(data: Mapping[str, Any]) -> str:
    for name in ("text", "content"):
        if isinstance(data.get(name), str):
            return str(data[name])
    return "\n".join(str(value) for value in data.values() if isinstance(value, str))


def placed(stored: Stored) -> dict[tuple[int, int], list[Op]]:
    """Say after which turn of which context every operation was done.

    Labels name the context, or a turn in it. One that names neither belongs to the turn of the
    operation before it.
    """
    names = {part.label: i for i, part in enumerate(stored.parts) if part.label}
    found: dict[tuple[int, int], list[Op]] = {}
    last = (0, 0)
    for op in stored.ops:
        turn = _TURN.fullmatch(op.label)
        if op.label in names:
            context = names[op.label]
            last = (context, max(0, len(stored.parts[context].turns) - 1))
        elif turn and (turn[1] is None or turn[1] in names):
            context = names.get(turn[1] or "", 0)
            most = len(stored.parts[context].turns) if stored.parts else 1
            last = (context, min(int(turn[2]), max(1, most)) - 1)
        found.setdefault(last, []).append(op)
    return found


def created_in(reply: str | None) -> list[tuple[str, ...]]:
    """Return the names that tools gave to new entries, one tuple an operation."""
    return [tuple(match[1].split(", ")) for match in CREATED.finditer(reply or "")]


def results_in(prompt: str | None) -> list[tuple[str, str]]:
    """Return the entries that a search showed: their names and texts."""
    return [(match[1], match[2]) for match in RESULT.finditer(prompt or "")]

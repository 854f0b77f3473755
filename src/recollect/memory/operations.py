"""The operations that edit a store, worked out before anything changes.

Planning checks everything and may refuse; carrying out a plan cannot fail. So a refused operation
leaves a store as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.memory.entries import BadOperation, Draft, Entry, Value, checked, plain
from recollect.types import MemoryOp

Get = Callable[[str], Entry]
"""Return the live entry with an id, or refuse."""


@dataclass(frozen=True)
class PlannedChange:
    """What an operation will do."""

    data: dict[str, Any]
    """The operation as plain data, to be recorded."""
    drafts: tuple[Draft, ...] = ()
    """What it writes."""
    over: str = ""
    """The id it writes to; empty means new ids."""
    buried: tuple[str, ...] = ()
    """Ids it deletes; what it writes takes their place."""


def plan(op: MemoryOp, get: Get) -> PlannedChange:
    """Check an operation against the present entries and work out what it does."""
    if op.kind not in PLANNERS:
        raise BadOperation(f"there is no operation {op.kind!r}, only {', '.join(PLANNERS)}")
    return PLANNERS[op.kind](op.data, get)


def filled(content: Any, metadata: Any) -> dict[str, Any]:
    """Return the part of an operation's data that describes an entry."""
    return {
        "content": content,
        "metadata": plain(metadata) if isinstance(metadata, Mapping) else metadata,
    }


def _add(data: Mapping[str, Any], get: Get) -> PlannedChange:
    draft = checked(data.get("content"), data.get("metadata", {}))
    return PlannedChange(filled(draft.content, draft.metadata), (draft,))


def _update(data: Mapping[str, Any], get: Get) -> PlannedChange:
    old = get(_id(data))
    patch = {key: data[key] for key in ("content", "metadata") if key in data}
    if not patch:
        raise BadOperation("an update needs content or metadata")
    named = checked(patch.get("content", old.content), patch.get("metadata", {}))
    own = filled(named.content, named.metadata)
    draft = Draft(named.content, {**old.metadata, **named.metadata})
    return PlannedChange({"id": old.id, **{key: own[key] for key in patch}}, (draft,), over=old.id)


def _delete(data: Mapping[str, Any], get: Get) -> PlannedChange:
    old = get(_id(data))
    return PlannedChange({"id": old.id}, buried=(old.id,))


def _merge(data: Mapping[str, Any], get: Get) -> PlannedChange:
    ids = data.get("ids")
    if not isinstance(ids, (list, tuple)) or not all(isinstance(id, str) for id in ids):
        raise BadOperation("a merge needs ids, a list such as ['memory_1', 'memory_2']")
    if len(set(ids)) != len(ids) or len(ids) < 2:
        raise BadOperation("a merge needs at least two ids, all different")
    olds = [get(id) for id in ids]
    named = checked(data.get("content"), data.get("metadata", {}))
    draft = Draft(named.content, {**_united(olds), **named.metadata})
    own = {"ids": list(ids), **filled(named.content, named.metadata)}
    return PlannedChange(own, (draft,), buried=tuple(ids))


def _split(data: Mapping[str, Any], get: Get) -> PlannedChange:
    old, parts = get(_id(data)), data.get("parts")
    if not isinstance(parts, (list, tuple)) or len(parts) < 2:
        raise BadOperation("a split needs parts, a list of at least two")
    if not all(isinstance(part, Mapping) for part in parts):
        raise BadOperation("a part of a split needs content, and may have metadata")
    named = [checked(part.get("content"), part.get("metadata", {})) for part in parts]
    drafts = tuple(Draft(part.content, {**old.metadata, **part.metadata}) for part in named)
    own = [filled(part.content, part.metadata) for part in named]
    return PlannedChange({"id": old.id, "parts": own}, drafts, buried=(old.id,))


PLANNERS: Mapping[str, Callable[[Mapping[str, Any], Get], PlannedChange]] = {
    "add": _add,
    "update": _update,
    "delete": _delete,
    "merge": _merge,
    "split": _split,
}


def _id(data: Mapping[str, Any]) -> str:
    id = data.get("id")
    if not isinstance(id, str):
        raise BadOperation("the operation needs an id, such as 'memory_1'")
    return id


def _united(entries: Sequence[Entry]) -> dict[str, Value]:
    """Combine metadata: one value where all agree, all values where they differ."""
    united: dict[str, Value] = {}
    for name in dict.fromkeys(name for entry in entries for name in entry.metadata):
        found = [entry.metadata[name] for entry in entries if name in entry.metadata]
        values = dict.fromkeys(
            text for value in found for text in ((value,) if isinstance(value, str) else value)
        )
        one = all(isinstance(value, str) for value in found) and len(values) == 1
        united[name] = next(iter(values)) if one else tuple(values)
    return united

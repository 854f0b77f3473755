"""What a memory store holds: entries with metadata and provenance, tombstones, filters.

Plain data. Knows nothing of search, vectors or files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Value = str | tuple[str, ...]
"""Metadata is text, or several texts."""
Metadata = Mapping[str, Value]

FACETS = ("source", "speaker", "session")
"""The metadata a search can be narrowed to."""

_ID = re.compile(r"memory_([1-9][0-9]{0,17})", re.ASCII)


class BadOperation(ValueError):
    """A request the store refuses; the message says why, in words an agent can act on."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A memory before it has an id."""

    content: str
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where an entry comes from: the base, or the operation that wrote it."""

    kind: str = "base"
    label: str = ""
    """Which turn wrote it, as the operation's label says."""
    parents: tuple[str, ...] = ()
    """Ids of the entries it was merged or split from."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One memory. Never changed in place: an update is another entry under the same id."""

    id: str
    content: str
    metadata: Metadata
    provenance: Provenance = Provenance()

    def plain(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return {
            "id": self.id,
            "content": self.content,
            "metadata": plain(self.metadata),
            "provenance": {
                "kind": self.provenance.kind,
                "label": self.provenance.label,
                "parents": list(self.provenance.parents),
            },
        }


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is left of a deleted entry."""

    id: str
    label: str = ""
    """Which turn deleted it."""
    into: tuple[str, ...] = ()
    """Ids of the entries that took its place, after a merge or a split."""


@dataclass(frozen=True)
class Filter:
    """Narrow a search: any of the values of each facet; an empty facet allows all.

    Values match whatever their case, because agents write names as they please.
    """

    source: tuple[str, ...] = ()
    speaker: tuple[str, ...] = ()
    session: tuple[str, ...] = ()

    def facets(self) -> list[list[str]]:
        """Return the keys to look up, one list per facet that narrows."""
        wanted = ((name, getattr(self, name)) for name in FACETS)
        return [[facet(name, value) for value in values] for name, values in wanted if values]


def facet(name: str, value: str) -> str:
    """Return the key under which entries with this metadata are found."""
    return f"{name}\0{value.strip().casefold()}"


def facets_of(metadata: Metadata) -> set[str]:
    """Return the keys an entry with this metadata is found under."""
    keys: set[str] = set()
    for name in FACETS:
        value = metadata.get(name, ())
        keys.update(facet(name, v) for v in ((value,) if isinstance(value, str) else value))
    return keys


def name_of(number: int) -> str:
    """Return the id of the number-th memory."""
    return f"memory_{number}"


def number_of(id: str) -> int:
    """Return the number in an id; 0, which no memory has, if it is not one."""
    match = _ID.fullmatch(id) if isinstance(id, str) else None
    return int(match[1]) if match else 0


def plain(metadata: Metadata) -> dict[str, Any]:
    """Return metadata as JSON-ready data."""
    return {k: v if isinstance(v, str) else list(v) for k, v in metadata.items()}


def check_text(what: str, text: Any) -> None:
    """Refuse what is not a text that says something and that a file can hold."""
    if not isinstance(text, str) or not text.strip():
        raise BadOperation(f"{what} must be a text that is not empty")
    _check_encodable(text)


def checked(content: Any, metadata: Any) -> Draft:
    """Return what was handed in as a draft of the store's own, or say what is wrong with it."""
    check_text("content", content)
    if not isinstance(metadata, Mapping):
        raise BadOperation("metadata must map names to texts")
    own: dict[str, Value] = {}
    for name, value in metadata.items():
        many = isinstance(value, (list, tuple))
        texts = tuple(value) if many else (value,)
        if not isinstance(name, str) or not all(isinstance(text, str) for text in texts):
            raise BadOperation(f"metadata {name!r} must be a text or a list of texts")
        _check_encodable("".join((name, *texts)))
        own[name] = texts if many else value
    return Draft(content, own)


def _check_encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        # JSON can carry half a surrogate pair; no file could hold the entry afterwards.
        raise BadOperation("the text holds characters that are not valid Unicode") from None

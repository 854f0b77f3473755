"""The two tools with which an agent works on a store of memories: search it, and edit it.

What the store refuses is answered; what fails for reasons of its own (an embedder, a lease that ran
out) ends the episode instead, because no reply of the model could fix it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

from recollect.bounds import FROM_1, check_bounds
from recollect.chat.tools import Tool, ToolFailed, tool
from recollect.errors import BoundaryError, UserError, boundary
from recollect.memory.entries import BadOperation, Entry, Filter, Value, facet
from recollect.memory.search import MODES, Mode
from recollect.memory.store import Store
from recollect.types import MemoryOp

Operation = Literal["create", "update", "delete", "merge", "split"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
KINDS = dict(zip(OPERATIONS, ("add", "update", "delete", "merge", "split"), strict=True))
"""The store's own names of the operations."""
Label = Callable[[], str]
"""Name the turn that is writing."""

AGENT_SOURCE = "agent_output"
"""The source of memories that an agent wrote."""
UNKNOWN_TIME = "unknown time"
SHOWN = {
    **{name: name for name in ("speaker", "evidence", "session")},
    **{"time": "timestamp", "source": "source"},
}
"""What a result shows beside id and content, and the metadata it is."""


@dataclass(frozen=True)
class MemoryTools:
    """Which memory tools an agent has, and how far they go."""

    operations: tuple[Operation, ...] = OPERATIONS
    """What manage_memory may do; with none there is no such tool."""
    mode: Mode = "bm25"
    """How search_memory ranks: dense and hybrid need vectors."""
    top_k: int = 5
    """Results of a search that does not say how many."""
    max_top_k: int = 50
    max_listed: int = 10_000
    """Memories that list_all shows."""
    required: tuple[Literal["speaker", "evidence", "session"], ...] = ()
    """Metadata without which nothing is created."""

    def __post_init__(self) -> None:
        check_bounds("agent.tools", self, top_k=FROM_1, max_top_k=FROM_1, max_listed=FROM_1)
        if unknown := set(self.operations) - set(OPERATIONS):
            raise UserError(
                f"there is no memory operation {min(unknown)!r}",
                f"choose from {', '.join(OPERATIONS)}",
            )
        if self.mode not in MODES:
            raise UserError(
                f"there is no search mode {self.mode!r}", f"choose from {', '.join(MODES)}"
            )

    def bind(self, store: Store, label: Label) -> tuple[Tool, ...]:
        """Make the tools for one store; what they write is labelled with the turn."""
        search = _search_tool(store, self)
        return (search, _manage_tool(store, self, label)) if self.operations else (search,)


REFERENCE = MemoryTools(("create",), mode="dense", required=("speaker", "evidence", "session"))
"""The published system's tools: search by meaning, and create."""


def _search_tool(store: Store, settings: MemoryTools) -> Tool:
    async def search_memory(
        query: str = "",
        top_k: int = settings.top_k,
        source_filter: str = "",
        speaker_filter: str = "",
        session_filter: str = "",
        list_all: bool = False,
    ) -> str:
        """Search the memory database.

        Args:
            query: What to look for.
            top_k: How many memories to return.
            source_filter: Only these sources, separated by commas.
            speaker_filter: Only these speakers, separated by commas.
            session_filter: Only these sessions, separated by commas.
            list_all: List everything that the filters allow, without a query.
        """
        filters = (source_filter, speaker_filter, session_filter)
        where = Filter(*(_names(text) for text in filters))
        if list_all:
            with _asking():
                entries = store.entries(where)
            return _shown(entries[: settings.max_listed], "listed", len(entries))
        if not query.strip():
            raise ToolFailed("Error: query is empty; say what to look for, or set list_all")
        most = settings.max_top_k
        with _asking():
            hits = await store.search(query, min(top_k, most), settings.mode, where)
        limit = f" (top_k is at most {most})" if top_k > most else ""
        return _shown([hit.entry for hit in hits], f"found for {query!r}{limit}", len(hits))

    return tool(search_memory)


def _manage_tool(store: Store, settings: MemoryTools, label: Label) -> Tool:
    def manage_memory(
        operation: Operation,
        content: str = "",
        memory_id: str = "",
        memory_ids: list[str] | None = None,
        parts: list[str] | None = None,
        speaker: str = "",
        evidence: str = "",
        session: str = "",
    ) -> str:
        """Edit the memory database.

        Args:
            operation: What to do.
            content: The text of the memory to write.
            memory_id: The memory to edit.
            memory_ids: The memories to merge into one.
            parts: The texts to split a memory into.
            speaker: Whom the memory is about.
            evidence: Ids of the turns it rests on, separated by commas.
            session: The session it belongs to.
        """
        metadata = _metadata(store, speaker, evidence, session)
        if operation == "create":
            given: dict[str, Any] = {"content": content.strip(), **metadata}
            if missing := [name for name in ("content", *settings.required) if not given.get(name)]:
                raise ToolFailed(f"Error: create needs {', '.join(missing)}")
        ids, texts = memory_ids or [], parts or []
        data = _data(operation, content, memory_id, ids, texts, metadata)
        with _asking():
            written = store.apply(MemoryOp(KINDS[operation], data, label()))
        named = ids if operation == "merge" else [memory_id]
        return _told(operation, ", ".join(named), ", ".join(entry.id for entry in written))

    needed_by = {
        "memory_id": {"update", "delete", "split"},
        "memory_ids": {"merge"},
        "parts": {"split"},
    }
    allowed = set(settings.operations)
    hidden = [name for name, users in needed_by.items() if not users & allowed]
    return tool(manage_memory).narrowed(hidden, operation=Literal[settings.operations])


def _data(
    operation: Operation,
    content: str,
    id: str,
    ids: list[str],
    parts: list[str],
    metadata: dict[str, Value],
) -> dict[str, Any]:
    """Return what the store's operation needs of what was given."""
    written = {**metadata, "source": AGENT_SOURCE}
    match operation:
        case "create":
            return {"content": content, "metadata": {"timestamp": UNKNOWN_TIME, **written}}
        case "update" if content:
            return {"id": id, "content": content, "metadata": written}
        case "update":
            # The words stay those of whoever wrote them.
            return {"id": id, **({"metadata": metadata} if metadata else {})}
        case "delete":
            return {"id": id}
        case "merge":
            return {"ids": ids, "content": content, "metadata": written}
        case "split":
            return {"id": id, "parts": [{"content": p, "metadata": written} for p in parts]}


def _told(operation: Operation, named: str, made: str) -> str:
    match operation:
        case "create":
            return f"Created {made}."
        case "merge":
            return f"Merged {named} into {made}."
        case "split":
            return f"Split {named} into {made}."
    return f"{operation.capitalize()}d {named}."


def _metadata(store: Store, speaker: str, evidence: str, session: str) -> dict[str, Value]:
    """Return the metadata that was given; a session of the base brings its time along."""
    found: dict[str, Value] = {}
    if speaker.strip():
        found["speaker"] = speaker.strip()
    if ids := tuple(dict.fromkeys(filter(None, re.split(r"[,;\s]+", evidence)))):
        found["evidence"] = ids
    if session.strip():
        found["session"] = session.strip()
        positions = store.corpus.facets.get(facet("session", session))[0]
        if len(positions):
            known = store.corpus.entry(int(positions[0]) + 1).metadata
            found["timestamp"] = known.get("timestamp", UNKNOWN_TIME)
    return found


@contextmanager
def _asking() -> Iterator[None]:
    """Answer what the store refuses; let what fails cross the boundary of the memory."""
    try:
        with boundary("memory"):
            yield
    except BoundaryError as error:
        if isinstance(error.cause, BadOperation):
            raise ToolFailed(f"Error: {error.cause}") from None
        raise


def _names(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, map(str.strip, text.split(","))))
    return () if any(name.lower() == "any" for name in names) else names


def _shown(entries: list[Entry], how: str, total: int) -> str:
    """Write one line per memory."""
    if not entries:
        raise ToolFailed(f"No memories {how}.")
    count = f"{total}" if total == len(entries) else f"The first {len(entries)} of {total}"
    noun = "memory" if total == 1 else "memories"
    lines = [f"{i}. {_line(entry)}" for i, entry in enumerate(entries, start=1)]
    return "\n".join([f"{count} {noun} {how}:", *lines])


def _line(entry: Entry) -> str:
    parts = [entry.id, " ".join(entry.content.split())]
    for name, key in SHOWN.items():
        value: Any = entry.metadata.get(key, "")
        parts.append(f"{name}: {value if isinstance(value, str) else ', '.join(value)}")
    return " | ".join(parts)

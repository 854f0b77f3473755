"""What every memory can do, whatever it holds."""

from __future__ import annotations

from typing import Any, Protocol, Self

from recollect.types import MemoryOp


class Memory(Protocol):
    """What an agent keeps between chats; edited only through operations."""

    ops: list[MemoryOp]
    """Every edit so far, in order: replaying them on a fresh memory gives this one."""

    def snapshot(self) -> dict[str, Any]:
        """Return the present state as plain data."""

    def fork(self) -> Self:
        """Return an independent copy that shares no later edit."""

    def close(self) -> None:
        """Give back whatever the memory holds; called once, however the episode ends."""

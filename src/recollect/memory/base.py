"""What every memory can do, whatever it holds."""

from __future__ import annotations

from typing import Any, Protocol, Self, runtime_checkable

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


@runtime_checkable
class Leased(Protocol):
    """A memory that is a trial of a shared base."""

    namespace: str
    """The name of the base, with a tail that no other trial has."""

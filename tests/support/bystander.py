"""A module of a user's beside the one that holds an agent."""

from __future__ import annotations

SEEN: list[str] = []


def see(task: str) -> None:
    """Keep what an agent says it has read."""
    SEEN.append(task)

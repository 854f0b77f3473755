"""Who answers what was folded: a model in this process, or another server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Protocol

from recollect.endpoint.folding import Folded
from recollect.types import Turn


@dataclass
class Answer:
    """What was answered, noted while it is sent."""

    texts: list[str] = field(default_factory=list)
    tokens: list[tuple[tuple[int, ...], Turn]] = field(default_factory=list)
    """Prompt and reply of every choice, where they are known token by token."""


class Answers(Protocol):
    """Answers requests that fit the window."""

    @property
    def name(self) -> str:
        """What clients call the model."""

    @property
    def alive(self) -> bool:
        """Whether requests can be answered."""

    def check(self, body: dict[str, Any]) -> None:
        """Refuse a request that could not be answered, before anything is read."""

    async def reply(self, body: dict[str, Any], folded: Folded, answer: Answer) -> bytes:
        """Return the whole answer as JSON."""

    def stream(
        self, body: dict[str, Any], folded: Folded, answer: Answer
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the answer in chunks."""

    async def close(self) -> None:
        """Let go of what is held."""

"""What a run provides to its agent and its reward beside their settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from recollect.chat.chat import Model
from recollect.errors import UserError
from recollect.memory.store import Embed, Store


class Stores(Protocol):
    """Opens trials of stored memories: a `MemoryStoreManager`."""

    def open(self, namespace: str, request_id: str | None = None) -> Store:
        """Open a trial of a base; closing it gives it back."""


@dataclass(frozen=True)
class Resources:
    """The parts of a run, and what it can open for them.

    While settings are checked there are no models yet, and nothing is opened.
    """

    agent: object = None
    reward: object = None
    tasks: object = None
    memory: type | None = None
    """The class of the agent's memories, if it is known."""
    outcome_share: float = 1.0
    vectors: bool = False
    """Whether the memories' vectors are stored, so that they can be searched by meaning."""
    models: Mapping[str, Model] = field(default_factory=dict)
    """By role."""
    open_stores: Callable[[], Stores] | None = None
    """Opens the memories that the tasks come with, if they come with any."""
    open_embedder: Callable[[], Embed] | None = None

    def require_vectors(self, modes: Mapping[str, str]) -> None:
        """Refuse settings, by name, that search by meaning where no vectors are stored."""
        for name, mode in modes.items():
            if mode != "bm25" and not self.vectors:
                raise UserError(
                    f"{name}.mode is {mode}, but there are no vectors",
                    "compute them with `recollect data embed` and name them with --embed.cache,"
                    f" or set --{name}.mode bm25",
                )

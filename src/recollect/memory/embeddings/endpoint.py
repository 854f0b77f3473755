"""Embedders behind an OpenAI-compatible `/v1/embeddings`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from recollect.memory.embeddings.base import Kind

if TYPE_CHECKING:
    from openai import AsyncOpenAI


@dataclass(frozen=True)
class EndpointEmbedder:
    """A served embedding model."""

    url: str
    """Up to and with /v1."""
    model: str
    api_key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; servers of one's own need none."""
    query_prompt: str = ""
    """Put before what is sought, for models that want it."""
    timeout: float = 60.0
    retries: int = 4
    _clients: list[tuple[asyncio.AbstractEventLoop, AsyncOpenAI]] = field(
        default_factory=list, repr=False, compare=False
    )

    @property
    def id(self) -> str:
        """The model's name as it is served, and the prompt it is asked with."""
        return f"{self.model}@endpoint" + (f"+{self.query_prompt}" if self.query_prompt else "")

    async def embed(self, texts: Sequence[str], kind: Kind = "document") -> np.ndarray:
        """Ask the server for the vectors of texts."""
        prompt = self.query_prompt if kind == "query" else ""
        answer = await self._client().embeddings.create(
            model=self.model, input=[prompt + text for text in texts], encoding_format="float"
        )
        rows = sorted(answer.data, key=lambda row: row.index)
        return np.array([row.embedding for row in rows], np.float32)

    def _client(self) -> AsyncOpenAI:
        # Connections belong to the event loop that opened them.
        from openai import AsyncOpenAI

        loop = asyncio.get_running_loop()
        if not self._clients or self._clients[0][0] is not loop:
            client = AsyncOpenAI(
                base_url=self.url,
                api_key=os.environ.get(self.api_key_env) or "none",
                timeout=self.timeout,
                max_retries=self.retries,
            )
            self._clients[:] = [(loop, client)]
        return self._clients[0][1]

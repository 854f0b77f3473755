"""Embedders behind an OpenAI-compatible `/v1/embeddings`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from recollect.memory.embeddings.base import Kind
from recollect.policies.client import RETRIED, Client, Endpoint
from recollect.policies.failures import BadReply, TimedOut


@dataclass(frozen=True)
class EndpointEmbedder:
    """A served embedding model."""

    url: str
    """Up to and with /v1."""
    model: str
    api_key_env: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; servers without keys need none."""
    query_prompt: str = ""
    """Put before what is sought, for models that want it."""
    timeout: float = 60.0
    retries: int = 4
    batch_size: ClassVar[int] = 64

    @property
    def id(self) -> str:
        """The model's name as it is served, and the prompt it is asked with."""
        return f"{self.model}@endpoint" + (f"+{self.query_prompt}" if self.query_prompt else "")

    async def embed(self, texts: Sequence[str], kind: Kind = "document") -> np.ndarray:
        """Ask the server for the vectors of texts."""
        prompt = self.query_prompt if kind == "query" else ""
        body = {
            "model": self.model,
            "input": [prompt + text for text in texts],
            "encoding_format": "float",
        }
        return await self._client.post("/embeddings", body, _vectors)

    @cached_property
    def _client(self) -> Client:
        endpoint = Endpoint(
            self.url, api_key_env=self.api_key_env, timeout=self.timeout, retries=self.retries
        )
        return Client(endpoint, (*RETRIED, TimedOut))


def _vectors(answer: dict[str, Any]) -> np.ndarray:
    """Take the vectors out of an answer, in the order of the texts."""
    try:
        rows = sorted(answer["data"], key=lambda row: row["index"])
        if [row["index"] for row in rows] != list(range(len(rows))):
            # Two vectors under one number: nobody knows which text each belongs to.
            raise ValueError("they are not numbered one by one")
        return np.array([row["embedding"] for row in rows], np.float32)
    except (KeyError, TypeError, ValueError) as error:
        raise BadReply(f"the vectors cannot be read: {error!r}") from None

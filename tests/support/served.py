"""Run a test against a server on loopback, with OpenAI's client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from openai import AsyncOpenAI

from recollect.models.model import LoadedModel
from recollect.serve.server import Serving, serving
from recollect.serve.settings import RequestLimits, ServeConfig

T = TypeVar("T")
Work = Callable[[AsyncOpenAI, Serving], Awaitable[T]]


def served(
    model: LoadedModel, work: Work[T], *, api_key: str = "", sent: str = "none", **limits: Any
) -> T:
    """Serve the model under the name `tiny`, and return what the work returns."""

    async def run() -> T:
        config = ServeConfig("", port=0, cache_gib=0.05, limits=RequestLimits(**limits))
        async with (
            serving(model, "tiny", config, api_key=api_key) as server,
            AsyncOpenAI(base_url=server.url, api_key=sent, max_retries=0, timeout=60) as client,
        ):
            return await work(client, server)

    return asyncio.run(run())

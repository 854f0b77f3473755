"""Serve one model: load it, and answer with it until asked to stop."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from recollect.concurrency.threads import share_interpreter
from recollect.foreign import one_line
from recollect.models.model import LoadedModel
from recollect.runs.stopping import status_of
from recollect.serve.app import make_app
from recollect.serve.engine import Engine
from recollect.serve.life import listening, until_signal
from recollect.serve.listening import LOCAL_NAMES, bind, find_key, is_loopback
from recollect.serve.service import Service
from recollect.serve.settings import ServeConfig
from recollect.train.source import ModelSource, find_source


@dataclass(frozen=True)
class Serving:
    """A server that answers."""

    url: str
    """With /v1 at its end, as clients want it."""
    service: Service


def run_server(config: ServeConfig) -> int:
    """Serve until a signal says to stop; return the exit status that names it."""
    # Mistakes come before minutes of loading.
    key = find_key(config.host, config.api_key_env, config.insecure)
    source = find_source(config.checkpoint)
    if config.ready_file:
        config.ready_file.unlink(missing_ok=True)  # an earlier server's address
    with bind(config.host, config.port) as listener:
        model = loaded(source, config)
        name = config.name or source.name
        server = _address(model, name, config, listener, key, source)
        return status_of(asyncio.run(until_signal(server, config, one_line(name))))


def loaded(source: ModelSource, config: ServeConfig) -> LoadedModel:
    """Load a model to be served by this process."""
    share_interpreter()  # with the threads that read requests
    model = source.load(config.device, config.threads, config.dtype)
    gc.collect()
    gc.freeze()  # what was loaded stays: looking through it again would hold up everybody
    return model


@asynccontextmanager
async def _address(
    model: LoadedModel,
    name: str,
    config: ServeConfig,
    listener: socket.socket,
    key: str,
    source: ModelSource,
) -> AsyncIterator[str]:
    async with serving(model, name, config, listener, key, source.folder) as server:
        yield server.url


@asynccontextmanager
async def serving(
    model: LoadedModel,
    name: str,
    config: ServeConfig = ServeConfig("", port=0),
    listener: socket.socket | None = None,
    api_key: str = "",
    folder: Path | None = None,
) -> AsyncIterator[Serving]:
    """Serve a loaded model while the block runs, in the loop it runs in.

    Clients on this machine learn the `folder` of its tokenizer.
    """
    listener = listener or bind(config.host, config.port)
    local = is_loopback(listener.getsockname()[0])
    root = str(folder.resolve()) if folder and local else ""
    engine = Engine(model, config.max_running, config.cache_gib, config.drafts)
    service = Service(name, engine, config.limits, root)
    app = make_app(service, api_key=api_key, hosts=LOCAL_NAMES if local else ())
    try:
        async with listening(app, config, listener) as url:
            yield Serving(url, service)
    finally:
        await service.close()

"""A server's life: load, bind, say so, serve until asked to stop, finish what is under way."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from recollect.files import write_text
from recollect.foreign import one_line
from recollect.models.model import LoadedModel
from recollect.runs.stopping import STOPS, status_of
from recollect.serve.app import make_app
from recollect.serve.connections import connection_type
from recollect.serve.engine import Engine
from recollect.serve.listening import BACKLOG, LOCAL_NAMES, bind, find_key, is_loopback
from recollect.serve.service import Service
from recollect.serve.settings import ServeConfig
from recollect.serve.source import ModelSource, find_source

MAX_HEAD = 1 << 15
ACCEPTED = 32
"""Connections accepted before requests have their turn; see `BACKLOG` too."""


@dataclass(frozen=True)
class Serving:
    """A server that answers."""

    url: str
    """With /v1 at its end, as clients want it."""
    service: Service


def run_server(config: ServeConfig) -> int:
    """Serve until a signal says to stop; return the exit status that names it."""
    # Torch gives the interpreter away with every operation, and would wait this long to get it back
    # while another thread reads a request.
    sys.setswitchinterval(0.0001)
    # Mistakes come before minutes of loading.
    key = find_key(config.host, config.api_key_env, config.insecure)
    source = find_source(config.checkpoint)
    if config.ready_file:
        config.ready_file.unlink(missing_ok=True)  # an earlier server's address
    with bind(config.host, config.port) as listener:
        model = source.load(config.device, config.threads, config.dtype)
        gc.collect()
        gc.freeze()  # what was loaded stays: looking through it again would hold up everybody
        return status_of(asyncio.run(_until_signal(model, source, config, listener, key)))


async def _until_signal(
    model: LoadedModel, source: ModelSource, config: ServeConfig, listener: socket.socket, key: str
) -> int:
    name = config.name or source.name
    loop = asyncio.get_running_loop()
    told: asyncio.Future[int] = loop.create_future()

    def stop(number: int) -> None:
        if not told.done():  # another signal does not end what is under way
            told.set_result(number)

    for heard in STOPS:
        if signal.getsignal(heard) != signal.SIG_IGN:
            loop.add_signal_handler(heard, stop, heard)
    async with serving(model, name, config, listener, key, source.folder) as server:
        if config.ready_file:
            write_text(config.ready_file, server.url + "\n")
        print(f"serving {one_line(name)} at {server.url}", flush=True)
        number = await told
        print("stopping", flush=True)
        return number


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
    host, port = listener.getsockname()[:2]
    local = is_loopback(host)
    root = str(folder.resolve()) if folder and local else ""
    engine = Engine(model, config.max_running, config.cache_gib)
    service = Service(name, engine, config.limits, root)
    server = _Server(
        uvicorn.Config(
            make_app(service, api_key=api_key, hosts=LOCAL_NAMES if local else ()),
            http=connection_type(config.limits),
            ws="none",  # a connection that becomes another kind would escape the limits
            h11_max_incomplete_event_size=MAX_HEAD,
            loop="none",
            lifespan="off",
            log_level="error",  # what others send wrong is their business, and must not fill a disk
            backlog=ACCEPTED,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(config.drain),
        )
    )
    task = asyncio.create_task(server.serve([listener]))
    try:
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        if server.started:
            listener.listen(BACKLOG)  # the loop takes one number for this and for how many it takes
        shown = f"[{host}]" if ":" in host else host
        yield Serving(f"http://{shown}:{port}/v1", service)
    finally:
        server.should_exit = True
        await task
        await service.close()


class _Server(uvicorn.Server):
    """Leaves signals to the program around it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

"""A web server's life: bind, say so, serve until asked to stop, finish what is under way.

Knows nothing of what is served; importable without torch.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from recollect.files import write_text
from recollect.foreign import shown
from recollect.runs.stopping import STOPS
from recollect.serve.connections import KEPT_ALIVE, connection_type
from recollect.serve.freed import keep_giving_back
from recollect.serve.listening import BACKLOG
from recollect.serve.settings import ServeConfig

MAX_HEAD = 1 << 15
ACCEPTED = 32
"""Connections accepted before requests have their turn; see `BACKLOG` too."""


async def until_signal(
    server: AbstractAsyncContextManager[str], config: ServeConfig, what: str
) -> int:
    """Serve until a signal says to stop; return its number."""
    loop = asyncio.get_running_loop()
    heard: asyncio.Future[int] = loop.create_future()

    def stop(number: int) -> None:
        if not heard.done():  # another signal does not end what is under way
            heard.set_result(number)

    for number in STOPS:
        if signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, stop, number)
    async with server as url:
        if config.ready_file:
            write_text(config.ready_file, url + "\n")
        print(shown(f"serving {what} at {url}"), flush=True)
        stopped = await heard
        print(shown("stopping"), flush=True)
        return stopped


@asynccontextmanager
async def listening(
    app: ASGIApp, config: ServeConfig, listener: socket.socket
) -> AsyncIterator[str]:
    """Serve an application while the block runs; yield its address, as clients want it."""
    host, port = listener.getsockname()[:2]
    server = _Server(
        uvicorn.Config(
            app,
            http=connection_type(config.limits),
            ws="none",  # a connection that becomes another kind would escape the limits
            h11_max_incomplete_event_size=MAX_HEAD,
            loop="none",
            lifespan="off",
            log_level="error",  # what others send wrong is their business, and must not fill a disk
            backlog=ACCEPTED,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEPT_ALIVE,
            timeout_graceful_shutdown=int(config.drain),
        )
    )
    task = asyncio.create_task(server.serve([listener]))
    freeing = asyncio.create_task(keep_giving_back())
    try:
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        if server.started:
            listener.listen(BACKLOG)  # the loop takes one number for this and for how many it takes
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{port}/v1"
    finally:
        freeing.cancel()
        server.should_exit = True
        await task


class _Server(uvicorn.Server):
    """Leaves signals to the program around it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

"""The viewer's web server: one page, its data, and who may ask for them."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.errors import UserError
from recollect.foreign import one_line, shown
from recollect.runs.stopping import STOPS, status_of
from recollect.serve.connections import KEPT_ALIVE, connection_type
from recollect.serve.listening import LOCAL_NAMES, is_loopback
from recollect.serve.settings import RequestLimits
from recollect.serve.web import host_of
from recollect.view.answers import Answers
from recollect.view.encoding import as_json

PAGE = Path(__file__).parent / "page"
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/view.js": ("view.js", "text/javascript; charset=utf-8"),
    "/parts.js": ("parts.js", "text/javascript; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/film.js": ("film.js", "text/javascript; charset=utf-8"),
    "/view.css": ("view.css", "text/css; charset=utf-8"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
LARGEST = 1 << 20
"""Bytes of a request."""
LIMITS = RequestLimits(connections=256, body_seconds=10.0)
MAX_HEAD = 1 << 15


def make_app(answers: Answers, key: str = "", hosts: tuple[str, ...] = ()) -> ASGIApp:
    """Make the application; `hosts` are the names it may be called by, or empty for any name."""

    async def page(request: Request) -> Response:
        name, kind = FILES[request.scope["path"]]
        return Response((PAGE / name).read_bytes(), media_type=kind, headers=HEADERS)

    async def data(request: Request) -> Response:
        path, query = request.path_params["path"], dict(request.query_params)
        return await _answered(lambda: answers.get(path, query))

    async def what_if(request: Request) -> Response:
        body = b""
        try:
            async with asyncio.timeout(LIMITS.body_seconds):
                async for piece in request.stream():
                    body += piece
                    if len(body) > LARGEST:
                        return _refused("the request is too long", 413)
        except (ClientDisconnect, TimeoutError):
            return _refused("the request did not arrive whole", 408)
        return await _answered(lambda: answers.what_if(request.path_params["id"], _object(body)))

    routes = [Route(path, page) for path in FILES]
    routes += [Route("/api/s/{id}/whatif", what_if, methods=["POST"])]
    routes += [Route("/api/{path:path}", data)]
    return _Guard(Starlette(routes=routes), key.encode(), hosts)


async def _answered(work: Any) -> Response:
    try:
        found = await run_in_threadpool(work)
    except UserError as error:
        return _refused(str(error), 400)
    return Response(as_json(found), media_type="application/json", headers=HEADERS)


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UserError("the request cannot be read", "reload the page")
    return found


def _refused(message: str, status: int) -> JSONResponse:
    return JSONResponse({"error": one_line(message, 1000)}, status, headers=HEADERS)


@dataclass(frozen=True)
class _Guard:
    """Lets in who has the key, and who means this server and not another name for it.

    The page itself holds nothing and needs no key. Only the page can ask for rollouts: a form of
    another site cannot send the header that it sends.
    """

    app: ASGIApp
    key: bytes
    hosts: tuple[str, ...]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self._refusal(scope)):
            await refusal(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = dict(scope["headers"])
        name = host_of(headers)
        if self.hosts and name not in self.hosts:
            return _refused(f"this server is not called {name!r}", 421)
        if not scope["path"].startswith("/api/"):
            return None
        if scope["method"] == "POST" and headers.get(b"x-recollect") != b"1":
            return _refused("only the page can ask for this", 403)
        sent = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
        if self.key and not secrets.compare_digest(sent, self.key):
            return _refused("this page needs its key", 401)
        return None


@contextmanager
def serving(answers: Answers, listener: socket.socket, key: str = "") -> Iterator[str]:
    """List the episodes, then serve in a thread while the block runs; yield the address."""
    answers.state()
    host, port = listener.getsockname()[:2]
    hosts = LOCAL_NAMES if is_loopback(host) else ()
    config = uvicorn.Config(
        make_app(answers, key, hosts),
        http=connection_type(LIMITS),
        ws="none",
        h11_max_incomplete_event_size=MAX_HEAD,
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEPT_ALIVE,
        timeout_graceful_shutdown=2,
    )
    server = _Server(config)
    thread = threading.Thread(target=lambda: server.run([listener]), daemon=True)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            thread.join(0.01)
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    finally:
        server.should_exit = True
        thread.join(5)


class _Server(uvicorn.Server):
    """Leaves signals to the program around it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve_until_stopped(answers: Answers, listener: socket.socket, key: str = "") -> int:
    """Serve until a signal says to stop; return the exit status that names it."""

    async def wait() -> int:
        loop = asyncio.get_running_loop()
        stopped: asyncio.Future[int] = loop.create_future()

        def stop(number: int) -> None:
            if not stopped.done():
                stopped.set_result(number)

        for number in STOPS:
            if signal.getsignal(number) != signal.SIG_IGN:
                loop.add_signal_handler(number, stop, number)
        with serving(answers, listener, key) as url:
            print(shown(f"viewing at {url} (Ctrl-C stops)"), flush=True)
            return await stopped

    return status_of(asyncio.run(wait()))

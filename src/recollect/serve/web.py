"""What all web applications here share: who may come in, streams, errors in OpenAI's shape.

Nothing a client sends names a file, and no client ever sees a traceback. Knows nothing of models.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.foreign import one_line, short_json
from recollect.serve.bodies import Bodies
from recollect.serve.refusal import Refusal

log = logging.getLogger("recollect.serve")
T = TypeVar("T")
WAITING = b": waiting\n\n"
NOT_KEPT = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def host_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the name that a request calls the server by, without the port."""
    host = headers.get(b"host", b"").decode("latin-1")
    return host if host.endswith("]") else host.rpartition(":")[0] or host


@dataclass(frozen=True)
class Guard:
    """Lets in who has the key, and who means this server.

    Without a key a web page could otherwise talk to a server on the visitor's own machine, by a
    name of its own that leads there.
    """

    app: ASGIApp
    api_key: bytes
    hosts: tuple[str, ...]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self._refusal(scope)):
            await refused(refusal)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = dict(scope["headers"])
        name = host_of(headers)
        if self.hosts and name not in self.hosts:
            return Refusal(f"this server is not called {name!r}", 421)
        if not self.api_key or scope["path"] == "/health":
            return None
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer" and secrets.compare_digest(given.strip(), self.api_key):
            return None
        return Refusal(
            "the API key is missing or wrong; send it as `Authorization: Bearer KEY`",
            401,
            code="invalid_api_key",
        )


def answering(
    work: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Answer with what the work returns, or with what went wrong."""

    async def answer(request: Request) -> Response:
        try:
            return await work(request)
        except Refusal as refusal:
            return refused(refusal)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:
            log.exception("a request to %s failed", one_line(request.scope["path"], 100))
            return refused(failed())

    return answer


async def body_of(request: Request, bodies: Bodies, held: list[int]) -> bytes:
    """Return a request's JSON, within limits."""
    content = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content != "application/json":
        raise Refusal("send JSON, with the header Content-Type: application/json", 415)
    announced = request.headers.get("content-length")
    return await bodies.read(request.stream(), announced, held)


async def events(
    chunks: AsyncGenerator[dict[str, Any] | None, None],
) -> AsyncGenerator[bytes, None]:
    """Write chunks as server-sent events; what goes wrong is the last of them.

    Instead of a chunk, None says that more will come.
    """
    try:
        async for chunk in chunks:
            yield WAITING if chunk is None else event(chunk)
        yield b"data: [DONE]\n\n"
    except Refusal as refusal:
        yield event(refusal.body)
    except Exception:
        log.exception("a stream failed")
        yield event(failed().body)
    finally:
        await chunks.aclose()


class EventStream(StreamingResponse):
    """Server-sent events; whether they end or nobody listens any more, the slots are freed."""

    def __init__(self, events: AsyncGenerator[bytes, None], slots: ExitStack) -> None:
        super().__init__(events, media_type="text/event-stream", headers=NOT_KEPT)
        self.events, self.slots = events, slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.slots:
            try:
                await super().__call__(scope, receive, send)
            finally:
                await self.events.aclose()


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Do the work, or drop it as soon as the client has gone away."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.create_task(work), asyncio.create_task(gone())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


def event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def failed() -> Refusal:
    return Refusal("the server failed; its log says why", 500, kind="server_error")


def refused(refusal: Refusal) -> Response:
    # A message may repeat what a client sent, and that need not be text that UTF-8 can hold.
    body, headers = short_json(refusal.body), dict(refusal.headers or {})
    return Response(body, refusal.status, headers, media_type="application/json")


async def no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = {404: "there is no", 405: f"{request.method} does not fit"}
    say = what.get(error.status_code, error.detail)
    return refused(Refusal(f"{say} {request.scope['path'][:200]}", error.status_code))

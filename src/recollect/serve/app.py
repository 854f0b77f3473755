"""The web application: routes, who may come in, and errors in the shape OpenAI's clients read.

Nothing a client sends names a file, and no client ever sees a traceback.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from recollect.foreign import one_line
from recollect.serve.refusal import Refusal
from recollect.serve.replies import Choice, Form
from recollect.serve.requests import (
    AnyBody,
    ChatAsked,
    CompletionAsked,
    DetokenizeAsked,
    GenerationBody,
    TokenizeAsked,
    read,
)
from recollect.serve.service import Service

log = logging.getLogger("recollect.serve")
T = TypeVar("T")
NOT_KEPT = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def make_app(service: Service, *, api_key: str = "", hosts: tuple[str, ...] = ()) -> ASGIApp:
    """Make the application; `hosts` are the names it may be called by, or empty for all."""
    handler = _Handler(service)
    routes = [
        Route("/health", handler.health),
        Route("/v1/models", handler.models),
        Route("/v1/models/{name:path}", handler.one_model),
        Route("/v1/chat/completions", handler.answering(handler.chat), methods=["POST"]),
        Route("/v1/completions", handler.answering(handler.text), methods=["POST"]),
        Route("/tokenize", handler.answering(handler.tokenize), methods=["POST"]),
        Route("/detokenize", handler.answering(handler.detokenize), methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _no_route})
    return _Guard(app, api_key.encode(), hosts)


@dataclass(frozen=True)
class _Guard:
    """Lets in who has the key, and who means this server.

    Without a key a web page could otherwise talk to a server on the visitor's own machine, by a
    name of its own that leads there.
    """

    app: ASGIApp
    api_key: bytes
    hosts: tuple[str, ...]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self._refusal(scope)):
            await _refused(refusal)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
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


@dataclass(frozen=True)
class _Handler:
    service: Service

    async def health(self, _request: Request) -> Response:
        alive = self.service.engine.alive
        return JSONResponse({"status": "ok" if alive else "dead"}, 200 if alive else 503)

    async def models(self, _request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def one_model(self, request: Request) -> Response:
        try:
            self.service.check_model(request.path_params["name"])
        except Refusal as refusal:
            return _refused(refusal)
        return JSONResponse(self._model())

    def _model(self) -> dict[str, Any]:
        return {
            "id": self.service.name,
            "object": "model",
            "created": self.service.created,
            "owned_by": "recollect",
            "root": self.service.root or self.service.name,
            "max_model_len": self.service.window,
        }

    def answering(
        self, work: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Answer with what the work returns, or with what went wrong."""

        async def answer(request: Request) -> Response:
            try:
                return await work(request)
            except Refusal as refusal:
                return _refused(refusal)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception:
                log.exception("a request to %s failed", one_line(request.scope["path"], 100))
                return _refused(_failed())

        return answer

    async def chat(self, request: Request) -> Response:
        with self.service.bodies.holding() as held:
            asked = await self._read(ChatAsked, request, held)
            return await self._answer(
                request, asked, asked.n or 1, lambda: self.service.chat(asked)
            )

    async def text(self, request: Request) -> Response:
        with self.service.bodies.holding() as held:
            asked = await self._read(CompletionAsked, request, held)
            choices = len(asked.prompts) * (asked.n or 1)
            return await self._answer(request, asked, choices, lambda: self.service.text(asked))

    async def tokenize(self, request: Request) -> Response:
        with self.service.bodies.holding() as held:
            asked = await self._read(TokenizeAsked, request, held)
            self.service.check_model(asked.model)
            if (asked.prompt is None) == (asked.messages is None):
                raise Refusal("give either prompt or messages")
            encoder = self.service.encoder
            if asked.messages is not None:
                schemas = [tool.model_dump(exclude_none=True) for tool in asked.tools or []]
                work = partial(encoder.render, asked.messages, schemas, weigh=False)
            else:
                special = asked.add_special_tokens
                work = partial(encoder.encode, asked.prompt or "", special, weigh=False)
            ids = await self._alone(request, work)
            body = await self.service.written(partial(_tokenized, ids, self.service.window))
        return Response(body, media_type="application/json")

    async def detokenize(self, request: Request) -> Response:
        with self.service.bodies.holding() as held:
            asked = await self._read(DetokenizeAsked, request, held)
            self.service.check_model(asked.model)
            self.service.check_ids(asked.tokens)
            text = await self._alone(request, partial(self.service.encoder.decode, asked.tokens))
        return JSONResponse({"prompt": text})

    async def _alone(self, request: Request, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do what takes one place, as long as the client waits for it."""
        with self.service.admission.admitted(1):
            return await _unless_gone(request, work())

    async def _read(self, kind: type[AnyBody], request: Request, held: list[int]) -> AnyBody:
        content = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content != "application/json":
            raise Refusal("send JSON, with the header Content-Type: application/json", 415)
        announced = request.headers.get("content-length")
        return read(kind, await self.service.bodies.read(request.stream(), announced, held))

    async def _answer(
        self,
        request: Request,
        asked: GenerationBody,
        choices: int,
        prepare: Callable[[], Coroutine[Any, Any, tuple[Form, list[Choice]]]],
    ) -> Response:
        """Reserve the choices, then prepare and make them."""
        with ExitStack() as slots:
            slots.enter_context(self.service.admission.admitted(choices))
            form, jobs = await _unless_gone(request, prepare())
            if asked.stream:
                return _EventStream(self._events(form, jobs), slots.pop_all())
            body = await _unless_gone(request, self.service.reply(form, jobs))
            return Response(body, media_type="application/json")

    async def _events(self, form: Form, jobs: list[Choice]) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(self.service.stream(form, jobs)) as chunks:
                async for chunk in chunks:
                    yield _event(chunk)
            yield b"data: [DONE]\n\n"
        except Exception:
            log.exception("a stream failed")
            yield _event(_failed().body)


class _EventStream(StreamingResponse):
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


async def _unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
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


def _tokenized(ids: Sequence[int], window: int) -> bytes:
    """Write the answer of /tokenize, some tokens at a time: others may run in between."""
    pieces = (",".join(map(str, ids[at : at + 4096])) for at in range(0, len(ids), 4096))
    return b'{"tokens":[%s],"count":%d,"max_model_len":%d}' % (
        ",".join(pieces).encode(),
        len(ids),
        window,
    )


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _failed() -> Refusal:
    return Refusal("the server failed; its log says why", 500, kind="server_error")


def _refused(refusal: Refusal) -> Response:
    return JSONResponse(refusal.body, refusal.status, refusal.headers)


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = {404: "there is no", 405: f"{request.method} does not fit"}
    say = what.get(error.status_code, error.detail)
    return _refused(Refusal(f"{say} {request.scope['path'][:200]}", error.status_code))

"""The web application of one served model: its routes, and what each of them does."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

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
from recollect.serve.web import (
    EventStream,
    Guard,
    answering,
    body_of,
    events,
    no_route,
    refused,
    unless_gone,
)

T = TypeVar("T")


def make_app(service: Service, *, api_key: str = "", hosts: tuple[str, ...] = ()) -> ASGIApp:
    """Make the application; `hosts` are the names it may be called by, or empty for all."""
    handler = _Handler(service)
    routes = [
        Route("/health", handler.health),
        Route("/v1/models", handler.models),
        Route("/v1/models/{name:path}", handler.one_model),
        Route("/v1/chat/completions", answering(handler.chat), methods=["POST"]),
        Route("/v1/completions", answering(handler.text), methods=["POST"]),
        Route("/tokenize", answering(handler.tokenize), methods=["POST"]),
        Route("/detokenize", answering(handler.detokenize), methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: no_route})
    return Guard(app, api_key.encode(), hosts)


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
            return refused(refusal)
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
            return await unless_gone(request, work())

    async def _read(self, kind: type[AnyBody], request: Request, held: list[int]) -> AnyBody:
        return read(kind, await body_of(request, self.service.bodies, held))

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
            form, jobs = await unless_gone(request, prepare())
            if asked.stream:
                return EventStream(events(self.service.stream(form, jobs)), slots.pop_all())
            body = await unless_gone(request, self.service.reply(form, jobs))
            return Response(body, media_type="application/json")


def _tokenized(ids: Sequence[int], window: int) -> bytes:
    """Write the answer of /tokenize, some tokens at a time: others may run in between."""
    pieces = (",".join(map(str, ids[at : at + 4096])) for at in range(0, len(ids), 4096))
    return b'{"tokens":[%s],"count":%d,"max_model_len":%d}' % (
        ",".join(pieces).encode(),
        len(ids),
        window,
    )

"""The endpoint's routes: chats of any length, and what is kept of them."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from recollect.endpoint.answers import Answer, Answers
from recollect.endpoint.episodes import Episodes
from recollect.endpoint.folding import Folded, Folding
from recollect.endpoint.upstream import reading_failed
from recollect.errors import BoundaryError, UserError
from recollect.foreign import one_line
from recollect.keeping.keeper import memory_text
from recollect.serve.admission import Admission
from recollect.serve.bodies import Bodies
from recollect.serve.refusal import Refusal
from recollect.serve.requests import MAX_N
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

log = logging.getLogger("recollect.endpoint")
USER = "x-recollect-user"
LONGEST_USER = 256
WAIT = 10.0
"""Seconds after which a stream says that it is still reading."""
SHOWN, PAGE = 200, 1000
"""Characters of an item in a list, and items of a list."""


@dataclass
class Endpoint:
    """What answers requests."""

    answers: Answers
    folding: Folding
    bodies: Bodies
    admission: Admission
    episodes: Episodes | None = None
    created: int = field(default_factory=lambda: int(time.time()))

    async def health(self, _request: Request) -> Response:
        alive = self.answers.alive
        return JSONResponse({"status": "ok" if alive else "dead"}, 200 if alive else 503)

    async def models(self, _request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def one_model(self, request: Request) -> Response:
        self.answers.check({"model": request.path_params["name"]})
        return JSONResponse(self._model())

    def _model(self) -> dict[str, Any]:
        # There is no max_model_len: what is longer than the window is folded.
        about = {"object": "model", "created": self.created, "owned_by": "recollect"}
        return {"id": self.answers.name, **about}

    async def chat(self, request: Request) -> Response:
        with self.bodies.holding() as held:
            body = _read(await body_of(request, self.bodies, held))
            user = _user(request, body)
            _messages(body)
            self.answers.check(body)
            with ExitStack() as slots:
                slots.enter_context(self.admission.admitted(_choices(body)))
                if not body.get("stream"):
                    data = await unless_gone(request, self._reply(body, user))
                    return Response(data, media_type="application/json")
                chunks = self._stream(body, user)
                # What goes wrong before it takes long has a status of its own.
                first = await unless_gone(request, _first(chunks))
                return EventStream(events(_after(first, chunks)), slots.pop_all())

    async def _reply(self, body: dict[str, Any], user: str) -> bytes:
        started, answer = time.monotonic(), Answer()
        folded = await self.folding.fold(body, user)
        data = await self.answers.reply(body, folded, answer)
        await self._store(user, folded, answer, started)
        return data

    async def _stream(
        self, body: dict[str, Any], user: str
    ) -> AsyncGenerator[dict[str, Any] | None, None]:
        """Yield the answer in chunks; None every few seconds while the agent reads."""
        started, answer = time.monotonic(), Answer()
        folding = asyncio.create_task(self.folding.fold(body, user))
        try:
            while not (await asyncio.wait({folding}, timeout=WAIT))[0]:
                yield None
            folded = folding.result()
        finally:
            folding.cancel()
        async with aclosing(self.answers.stream(body, folded, answer)) as chunks:
            async for chunk in chunks:
                yield chunk
        await self._store(user, folded, answer, started)

    async def _store(self, user: str, folded: Folded, answer: Answer, started: float) -> None:
        if self.episodes:
            await self.episodes.store(user, folded, answer, time.monotonic() - started)

    # --- what is kept ----------------------------------------------------------------------------

    async def memory(self, request: Request) -> Response:
        user = _named(request)
        sight = await self.folding.memories.see(user)
        if sight is None:
            raise _nothing(user)
        text = memory_text(sight.kept.memory)
        about = {"hash": sight.kept.hash, "tokens": self.folding.count(text), "text": text}
        counts = {"items": len(sight.items), "forgotten": sight.forgotten}
        return JSONResponse({"object": "memory", "user": user, "memory": about, **counts})

    async def items(self, request: Request) -> Response:
        user, limit = _named(request), _limit(request)
        sight = await self.folding.memories.see(user)
        if sight is None:
            raise _nothing(user)
        after = request.query_params.get("after", "")
        ids = [item.id for item in sight.items]
        start = ids.index(after) + 1 if after in ids else 0
        found = sight.items[start : start + limit]
        data = [
            {"id": item.id, "text": item.text[:SHOWN], "characters": len(item.text)}
            for item in found
        ]
        more = start + limit < len(ids)
        return JSONResponse({"object": "list", "data": data, "has_more": more})

    async def forget_item(self, request: Request) -> Response:
        user, id = _named(request), request.path_params["id"]
        found = await self.folding.memories.forget(user, id)
        if found is None:
            raise Refusal(f"{user!r} has no item {id[:64]!r}", 404, code="not_found")
        kept, gone = found
        if self.episodes:
            await self.episodes.forget(user)
        about = {"hash": kept.hash, "items": len(kept.items)}
        return JSONResponse({"deleted": True, "ids": gone, "user": user, "memory": about})

    async def forget_user(self, request: Request) -> Response:
        user = _named(request)
        if not await self.folding.memories.erase(user):
            raise _nothing(user)
        if self.episodes:
            await self.episodes.forget(user)
        return JSONResponse({"deleted": True, "user": user})


def make_app(endpoint: Endpoint, *, api_key: str = "", hosts: tuple[str, ...] = ()) -> ASGIApp:
    """Make the application; `hosts` are the names it may be called by, or empty for all."""
    routes = [
        Route("/health", endpoint.health),
        Route("/v1/models", endpoint.models),
        Route("/v1/models/{name:path}", answering(endpoint.one_model)),
        Route("/v1/chat/completions", _answering(endpoint.chat), methods=["POST"]),
        Route("/v1/memory", _answering(endpoint.memory), methods=["GET"]),
        Route("/v1/memory", _answering(endpoint.forget_user), methods=["DELETE"]),
        Route("/v1/memory/items", _answering(endpoint.items), methods=["GET"]),
        Route("/v1/memory/items/{id}", _answering(endpoint.forget_item), methods=["DELETE"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: no_route})
    return Guard(app, api_key.encode(), hosts)


def _answering(work: Any) -> Any:
    """Answer as every route does; a disk that is full or damaged is named in the log alone."""

    async def answer(request: Request) -> Response:
        try:
            response: Response = await work(request)
            return response
        except UserError as error:
            log.error("%s", one_line(str(error), 500))
            return refused(
                Refusal("the memory cannot be kept or read; the server's log says why", 500,
                        kind="server_error")
            )  # fmt: skip
        except BoundaryError as error:
            raise noted(error) from None
        except RecursionError:
            raise Refusal("the body is nested too deeply") from None

    return answering(answer)


def noted(error: BoundaryError) -> Refusal:
    """Return what a client reads about an agent that could not read; the log has it too."""
    refusal = reading_failed(error)
    log.warning("%s", one_line(str(refusal), 300))
    return refusal


async def _first(chunks: AsyncGenerator[dict[str, Any] | None, None]) -> dict[str, Any] | None:
    return await anext(chunks)


async def _after(
    first: dict[str, Any] | None, rest: AsyncGenerator[dict[str, Any] | None, None]
) -> AsyncGenerator[dict[str, Any] | None, None]:
    """Put the first chunk back before the others."""
    async with aclosing(rest):
        yield first
        try:
            async for chunk in rest:
                yield chunk
        except BoundaryError as error:
            raise noted(error) from None


def _read(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data, parse_constant=_no_number)
    except RecursionError:
        raise Refusal("the body is nested too deeply") from None
    except ValueError as error:
        raise Refusal(f"the body is not JSON: {one_line(str(error), 200)}") from None
    if not isinstance(body, dict):
        raise Refusal("the body is not a JSON object")
    if not isinstance(body.get("stream"), bool | None):
        raise Refusal("stream: it must be true or false", param="stream")
    return body


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _messages(body: dict[str, Any]) -> None:
    if not isinstance(body.get("messages"), list):
        raise Refusal("messages must be a list with at least one message", param="messages")


def _choices(body: dict[str, Any]) -> int:
    n = body.get("n")
    if n is None:
        return 1
    if type(n) is not int or not 1 <= n <= MAX_N:
        raise Refusal(f"n: it must be a number from 1 to {MAX_N}", param="n")
    return n


def _user(request: Request, body: dict[str, Any] | None = None) -> str:
    """Return whose memory is meant: the header's word, or the body's; empty for nobody's."""
    given = request.headers.get(USER)
    user = given if given is not None else (body or {}).get("user")
    if user is None:
        return ""
    if not isinstance(user, str) or len(user) > LONGEST_USER or not user.isprintable():
        raise Refusal(
            f"user: it must be a text of at most {LONGEST_USER} printable characters", param="user"
        )
    return user


def _named(request: Request) -> str:
    user = _user(request, {"user": request.query_params.get("user")})
    if not user:
        raise Refusal("whose memory? name the user: ?user=NAME or X-Recollect-User", param="user")
    return user


def _limit(request: Request) -> int:
    given = request.query_params.get("limit", str(PAGE))
    if not given.isdecimal() or len(given) > 8 or not 1 <= int(given) <= PAGE:
        raise Refusal(f"limit: it must be a number from 1 to {PAGE}", param="limit")
    return int(given)


def _nothing(user: str) -> Refusal:
    return Refusal(f"nothing is kept of {user!r}", 404, code="not_found")

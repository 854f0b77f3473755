"""Another server answers: requests are passed on with all their settings, and answers come back.

Whatever it does wrong becomes an error in the shape that OpenAI's clients read.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from recollect.endpoint.answers import Answer
from recollect.endpoint.folding import Folded
from recollect.endpoint.wire import MAX_BODY, Streamed, in_time, posted
from recollect.errors import BoundaryError
from recollect.files import loads
from recollect.foreign import one_line, redact, short_json
from recollect.policies.failures import EndpointError, RateLimited, Rejected, TimedOut
from recollect.policies.http import Slow, WireError
from recollect.serve.refusal import Refusal
from recollect.serve.requests import MAX_N

PATH = "/chat/completions"
MOST_LINE = 1 << 24
"""Bytes of one event of a stream."""
PASSED_ON = (400, 404, 409, 413, 422, 429)
"""Statuses that are the client's business; of others it only learns that the server failed."""


@dataclass(frozen=True)
class UpstreamAnswers:
    """Answers of another server."""

    url: str
    key: str
    model: str
    """As that server calls it."""
    name: str
    seconds: float = 300.0
    alive: bool = True

    def check(self, body: dict[str, Any]) -> None:
        """Refuse any other model's name; all other settings are that server's business."""
        asked = body.get("model")
        if asked not in (None, "", self.name, self.model):
            raise Refusal(
                f"there is no model {str(asked)[:100]!r} here, only {self.name!r}",
                404,
                param="model",
                code="model_not_found",
            )

    async def reply(self, body: dict[str, Any], folded: Folded, answer: Answer) -> bytes:
        """Return the whole answer as JSON."""
        sent = self._sent(body, folded)
        with failing():
            async with (
                in_time(self.seconds),
                posted(self.url, PATH, sent, self.key, self.seconds) as coming,
            ):
                found = _object(await _good(coming))
        if not isinstance(found.get("choices"), list):
            raise broken("it answered without choices")
        answer.texts = [_text(choice, "message") for choice in found["choices"]]
        return short_json(found | folded.receipt)

    async def stream(
        self, body: dict[str, Any], folded: Folded, answer: Answer
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the answer in chunks, the receipt with the last."""
        said: dict[int, list[str]] = {}
        sent = self._sent(body, folded)
        with failing():
            async with posted(self.url, PATH, sent, self.key, self.seconds) as coming:
                if coming.status != 200:
                    async with in_time(self.seconds):
                        await _good(coming)
                last: dict[str, Any] | None = None
                async for chunk in _chunks(coming):
                    if last is not None:
                        yield last
                    for choice in chunk["choices"]:
                        if text := _text(choice, "delta"):
                            said.setdefault(_index(choice), []).append(text)
                    last = chunk
                if last is None:
                    raise broken("its stream was empty")
                yield last | folded.receipt
        answer.texts = ["".join(said[at]) for at in sorted(said)]

    async def close(self) -> None:
        """Hold nothing between requests."""

    def _sent(self, body: dict[str, Any], folded: Folded) -> bytes:
        passed = {**body, "model": self.model, "messages": folded.messages}
        for name in ("max_tokens", "max_completion_tokens"):
            if type(passed.get(name)) is int and passed[name] > folded.reply:
                passed[name] = folded.reply
        return short_json(passed)


async def _good(coming: Streamed) -> bytes:
    body = await coming.whole()
    if coming.status == 200:
        return body
    try:
        error = _object(body).get("error", {})
        said = error.get("message") if isinstance(error, dict) else error
    except Refusal:
        said = ""
    message = (
        f"the model's server answered {coming.status}: {one_line(redact(str(said or '')), 300)}"
    )
    if coming.status not in PASSED_ON:
        raise Refusal(message, 502, kind="server_error", code="upstream_error")
    code = error.get("code") if isinstance(error, dict) else None
    kind = "rate_limit_error" if coming.status == 429 else "invalid_request_error"
    after = coming.headers.get("retry-after", "")
    raise Refusal(
        message,
        coming.status,
        kind=kind,
        code=code if isinstance(code, str) else "upstream_error",
        retry_after=int(after) if after.isdecimal() and len(after) < 6 else 0,
    )


async def _chunks(coming: Streamed) -> AsyncIterator[dict[str, Any]]:
    """Yield the chunks of a stream of events; one that is cut off is an error."""
    async for data in _lines(coming):
        if data == b"[DONE]":
            return
        chunk = _object(data)
        if error := chunk.get("error"):
            said = error.get("message") if isinstance(error, dict) else error
            raise broken(f"its stream ended with: {one_line(redact(str(said)), 300)}")
        if not isinstance(chunk.get("choices"), list):
            raise broken("a chunk of its stream has no choices")
        yield chunk
    raise broken("its stream was cut off")


async def _lines(coming: Streamed) -> AsyncIterator[bytes]:
    held, size = bytearray(), 0
    async for piece in coming.pieces:
        size += len(piece)
        if size > MAX_BODY:
            raise broken(f"its stream has more than {MAX_BODY} bytes")
        held += piece
        if b"\n" not in piece:  # not looked through again: a line may come byte by byte
            if len(held) > MOST_LINE:
                raise broken("an event of its stream is too long")
            continue
        *lines, rest = bytes(held).split(b"\n")
        held = bytearray(rest)
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()
            elif line.strip() and not line.startswith((b":", b"event:", b"id:", b"retry:")):
                raise broken("what it streams are no events")
    if held.strip().startswith(b"data:"):
        yield bytes(held).strip()[5:].strip()


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = loads(data.decode("utf-8", "replace"))
    except ValueError:
        raise broken("it did not answer with JSON") from None
    if not isinstance(found, dict):
        raise broken("it did not answer with a JSON object")
    return found


def _index(choice: dict[str, Any]) -> int:
    """Return which of the answers a piece belongs to; servers may say anything."""
    at = choice.get("index")
    return at if type(at) is int and 0 <= at < MAX_N else 0


def _text(choice: Any, name: str) -> str:
    said = choice.get(name) if isinstance(choice, dict) else None
    content = said.get("content") if isinstance(said, dict) else None
    return content if isinstance(content, str) else ""


def broken(what: str) -> Refusal:
    """Say what the model's server did wrong."""
    return Refusal(
        f"the model's server failed: {what}", 502, kind="server_error", code="upstream_error"
    )


def late(what: str) -> Refusal:
    """Say that the model's server is too slow."""
    return Refusal(
        f"the model's server is too slow: {what}", 504, kind="server_error", code="upstream_timeout"
    )


@contextmanager
def failing() -> Iterator[None]:
    """Turn what goes wrong on the way to another server into what clients read."""
    try:
        yield
    except Slow as error:
        raise late(str(error)) from None
    except WireError as error:
        raise broken(one_line(str(error), 300)) from None


def reading_failed(error: BoundaryError) -> Refusal:
    """Say why an agent could not read."""
    cause: BaseException = error
    while isinstance(cause, BoundaryError):
        cause = cause.cause
    said = one_line(redact(str(cause)), 300)
    if isinstance(cause, TimedOut):
        return late(said)
    if isinstance(cause, RateLimited):
        return Refusal(
            f"the model's server is busy: {said}", 429, kind="rate_limit_error", retry_after=1
        )
    if isinstance(cause, WireError | EndpointError):
        kind = "refused what the agent reads" if isinstance(cause, Rejected) else "failed"
        return Refusal(
            f"the model's server {kind}: {said}", 502, kind="server_error", code="upstream_error"
        )
    place = error.failure.place
    where = f" at {place}" if place else ""
    return Refusal(
        f"the agent failed{where}: {type(cause).__name__}: {said}", 500, kind="server_error",
        code="agent_error",
    )  # fmt: skip

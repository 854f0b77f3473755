"""A server on loopback that continues token ids and answers messages, as vLLM's does.

Runs in a thread with an event loop of its own. What it says is decided by functions, so that a test
knows it; what it was asked is kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

from recollect.chat.rendering import Tokenizer

Continue = Callable[[list[int], dict[str, Any]], list[int]]
"""Token ids that follow a prompt; what comes after `max_tokens` is cut."""
Speak = Callable[[dict[str, Any]], dict[str, Any]]
"""The message that answers a chat request."""
Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class TokenServer:
    """Where the server is, what it was asked and what it answered."""

    port: int
    asked: list[dict[str, Any]] = field(default_factory=list)
    answered: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    vanish: Callable[[], None] = lambda: None
    """Be gone at once; to be called while answering."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@contextmanager
def token_server(
    tokenizer: Tokenizer,
    continue_: Continue | None,
    speak: Speak | None = None,
    *,
    name: str = "tiny",
    port: int = 0,
    edit: Callable[[dict[str, Any]], dict[str, Any]] = lambda answer: answer,
    **entry: Any,
) -> Iterator[TokenServer]:
    """Serve until the block ends; without `continue_` only messages are taken."""
    server = TokenServer(port)

    def answer(path: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": name, "object": "model", **entry}]}
        server.asked.append(request)
        if path == "/v1/completions" and continue_ is not None:
            return 200, edit(_completion(tokenizer, continue_, request))
        if path == "/v1/chat/completions" and speak is not None:
            message = {"role": "assistant", **speak(request)}
            reason = "tool_calls" if message.get("tool_calls") else "stop"
            choice = {"index": 0, "message": message, "finish_reason": reason}
            usage = {"prompt_tokens": 7, "completion_tokens": 3}
            return 200, edit({"choices": [choice], "usage": usage})
        return 404, {"error": {"message": f"there is no {path}"}}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (head := await read_request(reader)) is not None:
            path, headers, body = head
            server.keys.append(headers.get("authorization", ""))
            status, content = answer(path, json.loads(body or b"{}"))
            server.answered.append(content)
            writer.write(http_response(status, json.dumps(content).encode()))

    listener = Listener(handle, port)
    server.port, server.vanish = listener.port, listener.vanish
    try:
        yield server
    finally:
        listener.close()


def _completion(
    tokenizer: Tokenizer, continue_: Continue, request: dict[str, Any]
) -> dict[str, Any]:
    prompt = request["prompt"]
    ids = continue_(prompt, request)
    cut = ids[: request["max_tokens"]]
    choice = {
        "index": 0,
        "text": tokenizer.decode(cut),
        "token_ids": cut,
        "prompt_token_ids": prompt,
        "logprobs": {"token_logprobs": [-0.25 * (i % 5) for i in range(len(cut))]},
        "finish_reason": "stop" if cut == ids else "length",
    }
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(cut)}
    return {"object": "text_completion", "choices": [choice], "usage": usage}


async def read_request(
    reader: asyncio.StreamReader,
) -> tuple[str, dict[str, str], bytes] | None:
    """Read one request: its path, headers and body; None at the connection's end."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
        return (
            head[0].split()[1],
            headers,
            await reader.readexactly(int(headers.get("content-length", 0))),
        )
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def http_response(status: int, body: bytes, *headers: str) -> bytes:
    """Put a response together."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class Listener:
    """A port on loopback, served in a thread."""

    def __init__(self, handle: Handle, port: int = 0) -> None:
        self._handle = handle
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop.run_until_complete(self._listen(port))
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    async def _listen(self, port: int) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._handle(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def pause(self, seconds: float) -> None:
        """Refuse new connections for a while; call it from a handler."""
        self._server.close()

        async def again() -> None:
            await asyncio.sleep(seconds)
            await self._listen(self.port)

        self._tasks.add(asyncio.ensure_future(again()))

    def vanish(self) -> None:
        """Stop listening and end all connections; call it from a handler."""
        self._server.close()
        for task in self._tasks:
            self._loop.call_soon(task.cancel)

    def close(self) -> None:
        """End everything."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextmanager
def listening(handle: Handle, port: int = 0) -> Iterator[tuple[int, Callable[[], None]]]:
    """Serve connections in a thread; yield the port and a function that ends it at once."""
    listener = Listener(handle, port)
    try:
        yield listener.port, listener.close
    finally:
        listener.close()

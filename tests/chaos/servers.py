"""Model servers that fail a share of their calls in every way a reply can be wrong."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.invariants import Findings, bad_manners
from tests.chaos.kills import end
from tests.chaos.process import start
from tests.chaos.workloads import Unit, evaluation
from tests.support.token_server import Listener, http_response, read_request


def said_to(text: str) -> str:
    """Answer a prompt: the same text is always answered alike."""
    return f"code {sum(map(ord, text)) % 9973}"


def chat_reply(text: str) -> dict[str, Any]:
    """Put a reply together as OpenAI's protocol has it."""
    message = {"role": "assistant", "content": said_to(text)}
    usage = {"prompt_tokens": len(text) // 4 + 1, "completion_tokens": 3}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage}


def _half(body: bytes) -> bytes:
    return http_response(200, body)[: -len(body) // 2]


def _with(body: bytes, **changes: Any) -> bytes:
    return http_response(200, json.dumps({**json.loads(body), **changes}).encode())


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
FAULTS: dict[str, Callable[[bytes], bytes]] = {
    "reset": lambda body: b"",
    "half a head": lambda body: b"HTTP/1.1 200 OK\r\nContent-Le",
    "half a body": _half,
    "429": lambda body: http_response(429, b'{"error": "slow down"}', "Retry-After: 0"),
    "429 for a year": lambda body: http_response(429, b"{}", "Retry-After: 31536000"),
    "500": lambda body: http_response(500, b'{"error": {"message": "\x1b[2J"}}'),
    "503 in HTML": lambda body: http_response(503, b"<html>busy</html>"),
    "garbage": lambda body: random.Random(len(body)).randbytes(300),
    "no JSON": lambda body: http_response(200, b"\xff\x00 not JSON"),
    "a list": lambda body: http_response(200, b"[1, 2, 3]"),
    "no choices": lambda body: _with(body, choices=[]),
    "choices of null": lambda body: _with(body, choices=None),
    "negative chunk": lambda body: HEAD + b"-5\r\nhello\r\n0\r\n\r\n",
    "absurd chunk": lambda body: HEAD + b"f" * 40 + b"\r\n" + body,
    "negative length": lambda body: b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n" + body,
    "deep JSON": lambda body: http_response(200, b"[" * 100_000),
    "absurd counts": lambda body: _with(body, usage={"prompt_tokens": 10**30}),
    "another status": lambda body: http_response(299, b"") + b"\0\0",
}


@dataclass
class FaultyServer:
    """Where it is, and what it did."""

    url: str
    share: float
    injected: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)


@contextmanager
def faulty_server(share: float, seed: int | str, seconds: float = 0.02) -> Iterator[FaultyServer]:
    """Serve chats; a `share` of the calls is spoilt, every other one waits for `seconds`."""
    draw = random.Random(seed)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await read_request(reader)) is not None:
            path, _headers, body = request
            if path.endswith("/models"):
                writer.write(http_response(200, b'{"data": [{"id": "tiny"}]}'))
                continue
            if not path.endswith("/chat/completions"):
                writer.write(http_response(404, b'{"error": {"message": "chats only"}}'))
                continue
            text = json.loads(body)["messages"][-1]["content"]
            server.asked[text] += 1
            reply = json.dumps(chat_reply(text)).encode()
            if text != "Say OK." and draw.random() < server.share:
                name = draw.choice(list(FAULTS))
                server.injected[name] += 1
                writer.write(FAULTS[name](reply))
                await writer.drain()
                return
            await asyncio.sleep(draw.uniform(0, 2 * seconds))
            writer.write(http_response(200, reply))

    listener = Listener(handle)
    server = FaultyServer(f"http://127.0.0.1:{listener.port}/v1", share)
    try:
        yield server
    finally:
        listener.close()


def deceive(
    server: FaultyServer, folder: Path, whole: list[Unit], draw: random.Random
) -> tuple[Findings, list[float]]:
    """Evaluate against a server that fails, then against one that is well again."""
    workload = evaluation(server.url, "--retry-failed")
    server.share = draw.uniform(0.1, 0.9)
    command = start(workload.arguments(folder), folder.parent)
    said = bad_manners(*command.wait(), allowed={0, 1, 2})
    server.share, began = 0.0, time.monotonic()
    found = end(workload, folder, whole, said)
    return found, [time.monotonic() - began]

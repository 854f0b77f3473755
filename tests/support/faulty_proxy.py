"""A proxy on loopback that spoils a share of the calls that pass through it, by a seed.

What it did is counted by kind; the rest reaches the server behind it and comes back as it is.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.token_server import Listener, http_response, read_request

FAULTS = ("refuse", "reset", "429", "500", "hang", "truncate", "wrong ids", "drip")


@dataclass
class FaultyProxy:
    """Where it is, and what it did."""

    port: int = 0
    share: float = 0.2
    passed: int = 0
    injected: Counter[str] = field(default_factory=Counter)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@contextmanager
def faulty_proxy(target: int, share: float = 0.2, seed: int = 0) -> Iterator[FaultyProxy]:
    """Stand in front of a server's port; only calls are spoiled, not questions about models."""
    proxy = FaultyProxy(share=share)
    draw = random.Random(seed)

    async def forward(head: tuple[str, dict[str, str], bytes]) -> bytes:
        path, _, body = head
        reader, writer = await asyncio.open_connection("127.0.0.1", target)
        method = "POST" if body else "GET"
        writer.write(
            f"{method} {path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        got = await reader.readuntil(b"\r\n\r\n")
        size = int(got.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        answer = await reader.readexactly(size)
        writer.close()
        return answer

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (head := await read_request(reader)) is not None:
            spoilt = head[0].endswith("completions") and draw.random() < proxy.share
            fault = FAULTS[proxy.injected.total() % len(FAULTS)] if spoilt else ""
            if fault:
                proxy.injected[fault] += 1
            if fault == "refuse":  # for a moment nothing listens on the port
                await listener.pause(0.03)
            if fault in ("refuse", "reset"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Le")
                await writer.drain()
                return
            if fault in ("429", "500"):
                writer.write(http_response(int(fault), b'{"error": "no"}', "Retry-After: 0"))
                continue
            if fault == "hang":
                await asyncio.sleep(60)
            answer = await forward(head)
            if fault == "truncate":
                answer = answer[: len(answer) // 2]
            elif fault == "wrong ids":
                content = json.loads(answer)
                content["choices"][0]["token_ids"][-1] = 10**6
                answer = json.dumps(content).encode()
            response = http_response(200, answer)
            if fault == "drip":
                for byte in response:
                    if writer.is_closing():
                        return
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0.05)
            writer.write(response)
            proxy.passed += not fault

    listener = Listener(handle)
    proxy.port = listener.port
    try:
        yield proxy
    finally:
        listener.close()

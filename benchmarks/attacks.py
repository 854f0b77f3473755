"""What servers are attacked with: every kind by name, for `benchmarks/soak.py` and for tests.

Bodies ask for too much, or are no request at all; the other kinds misuse connections. An attacker
notes the status of every answer, so that none of them can be a failure of the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from recollect.policies.http import Wire, WireError

HEAD = "POST /v1/{} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
USER = [{"role": "user", "content": "a"}]
WRONG = (None, True, -1, 10**18, 1.5, "", "x", [], {}, [[]], [None], {"a": []}, "\U0001f600" * 9)
"""Values of types that a field does not have, or of the right one but without sense."""
FIELDS = (
    *("model", "max_tokens", "temperature", "top_p", "n", "seed", "stop", "stream", "logprobs"),
    *("top_logprobs", "tools", "messages", "prompt", "echo", "stream_options", "logit_bias"),
    *("stop_token_ids", "return_token_ids", "tool_choice", "no_such_field"),
)
HELD = 200
"""Connections that one attacker keeps."""


def bodies(draw: random.Random, window: int) -> dict[str, tuple[str, bytes]]:
    """Return requests that ask for too much, for as much as is allowed, or for nothing at all."""
    long = [draw.randrange(200) for _ in range(window - 20)]
    text, chat = "completions", "chat/completions"
    some, many = (b",".join(b'"k%d":1' % i for i in range(n)) for n in (10_000, 100_000))
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "choices": (text, {"prompt": [[1]] * 1000, "n": 128}),
        "text": (text, {"prompt": "hello " * 700_000}),
        "15 MB": (chat, {"messages": [{"role": "user", "content": "hello " * 2_500_000}]}),
        "escapes": (text, {"prompt": "\u00e9" * 150_000}),
        "long": (text, {"prompt": long, "max_tokens": 8}),
        "echo": (text, {"prompt": long, "max_tokens": 0, "echo": True, "logprobs": 5}),
        "many": (text, {"prompt": [5, 6], "n": 32, "max_tokens": 64}),
        "stops": (chat, {"messages": USER, "stop": [f"s{i}" for i in range(10_000)]}),
        "logprobs": (chat, {"messages": USER, "logprobs": True, "top_logprobs": 10**9}),
        "negative": (text, {"prompt": "a", "max_tokens": -5, "n": -1}),
        "no such model": (chat, {"messages": USER, "model": "m" * 900_000}),
        "long name": (chat, {"messages": USER, "n" * 900_000: 1}),
        "tools": (chat, {"messages": USER, "tools": [_tool(5000)], "max_tokens": 4}),
        "parts": (chat, {"messages": [{"role": "user", "content": _parts(4096)}]}),
    }
    raw = {
        "prompts": (text, b'{"prompt": [' + b"[1]," * 20_000 + b"[1]]}"),
        "values": (text, b'{"prompt": [' + b"1," * 500_000 + b"1]}"),
        "messages": (chat, b'{"messages": [' + b"{}," * 9000 + b"{}]}"),
        "deep": (text, b'{"prompt": ' + b"[" * 200_000),
        "deep objects": (chat, b'{"messages": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001),
        "integers": (text, b'{"prompt": [' + b",".join([b"9" * 4000] * 240) + b"]}"),
        "integer": (chat, b'{"messages": [], "max_tokens": ' + b"9" * 900_000 + b"}"),
        "unknown": (chat, b'{"messages": [{"role": "user", "content": "a"}],' + many + b"}"),
        "unknown inside": (chat, b'{"stream_options": {' + some + b"}}"),
        "nan": (chat, b'{"messages": [{"role": "user", "content": "a"}], "temperature": NaN}'),
        "inf": (text, b'{"prompt": "a", "temperature": 1e999, "top_p": -Infinity}'),
        "surrogate": (chat, b'{"messages": [{"role": "user", "content": "\\ud800"}]}'),
        "no UTF-8": (chat, b'{"messages": [{"role": "user", "content": "\xff\xfe\x00"}]}'),
        "cut short": (chat, b'{"messages": [{"role": "user", "content": "a'),
        "no JSON": (text, bytes(range(256)) * 100),
        "nothing": (chat, b""),
    }
    return raw | {name: (path, json.dumps(body).encode()) for name, (path, body) in asked.items()}


def _tool(fields: int) -> dict[str, Any]:
    properties = {f"field_{i}": {"type": "string"} for i in range(fields)}
    return {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object", "properties": properties}},
    }


def _parts(count: int) -> list[dict[str, str]]:
    return [{"type": "text", "text": "a"}] * count


@dataclass
class Attacker:
    """One hostile client; `attack` picks one kind after the other."""

    url: str
    seed: int
    window: int
    only: Sequence[str] = ()
    """Bodies to send; with none of them, everything is tried."""
    statuses: Counter[int] = field(default_factory=Counter)
    """Of the answers; one that is 500 or above is a failure of the server's."""

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.held: list[asyncio.StreamWriter] = []
        parts = urlsplit(self.url)
        self.host, self.port = parts.hostname, parts.port

    @cached_property
    def bodies(self) -> dict[str, tuple[str, bytes]]:
        """The bodies that are sent, by name."""
        found = bodies(self.draw, self.window)
        return {name: found[name] for name in self.only or found}

    async def attack(self) -> None:
        """Do one hostile thing."""
        kinds = [self.body, self.body, self.body, self.wrong_types, self.leaver, self.stream_leaver]
        kinds += [self.holder, self.crowd, self.dripper, self.garbage, self.tiny_chunks, self.pipe]
        kinds += [self.deaf]
        with contextlib.suppress(WireError, OSError, EOFError):
            await (self.body if self.only else self.draw.choice(kinds))()

    async def opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection."""
        return await asyncio.open_connection(self.host, self.port)

    async def send(self, path: str, data: bytes) -> None:
        """Send a whole request on a connection of its own, and note the answer."""
        wire = Wire(self.url)
        try:
            response = await wire.send("POST", f"/{path}", data, seconds=60)
            self.statuses[response.status] += 1
        finally:
            wire.close()

    # --- whole requests --------------------------------------------------------------------------

    async def body(self) -> None:
        """Send one of the bodies."""
        await self.send(*self.bodies[self.draw.choice(list(self.bodies))])

    async def wrong_types(self) -> None:
        """Give some fields values that they cannot have."""
        draw = self.draw
        path = draw.choice(["completions", "chat/completions"])
        asked: dict[str, Any] = {"messages": USER} if "chat" in path else {"prompt": "a"}
        asked["max_tokens"] = 2
        asked |= {name: draw.choice(WRONG) for name in draw.sample(FIELDS, draw.randint(1, 4))}
        await self.send(path, json.dumps(asked).encode())

    async def leaver(self) -> None:
        """Leave before the answer comes."""
        name = self.draw.choice([n for n in ("long", "many", "echo", "text") if n in self.bodies])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.draw.random() * 0.2):
                await self.send(*self.bodies[name])

    async def stream_leaver(self) -> None:
        """Leave in the middle of a stream."""
        asked = {"prompt": [5, 6, 7], "max_tokens": 500, "stream": True, "n": 4}
        reader, writer = await self.posted(json.dumps(asked).encode())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await reader.read(self.draw.randint(1, 2000))
        writer.transport.abort()

    async def posted(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a request whose answer is left to the caller."""
        reader, writer = await self.opened()
        head = HEAD.format("completions") + f"Content-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        return reader, writer

    # --- connections -----------------------------------------------------------------------------

    def hold(self, writer: asyncio.StreamWriter) -> None:
        """Keep a connection; the oldest go."""
        self.held.append(writer)
        while len(self.held) > HELD:
            self.held.pop(0).transport.abort()

    async def holder(self) -> None:
        """Begin a request and never finish it."""
        _reader, writer = await self.opened()
        half = HEAD.format("completions")
        whole = half + 'Content-Length: 5000\r\n\r\n{"prompt": "'
        writer.write(self.draw.choice(["", half[:30], half, whole]).encode())
        self.hold(writer)

    async def crowd(self) -> None:
        """Open many connections at once, and use none of them."""
        opened = await asyncio.gather(*(self.opened() for _ in range(100)), return_exceptions=True)
        for one in opened:
            if not isinstance(one, BaseException):
                self.hold(one[1])

    async def dripper(self) -> None:
        """Send a head or a body byte by byte."""
        _reader, writer = await self.opened()
        head = HEAD.format("completions")
        if self.draw.random() < 0.5:
            writer.write((head + "Content-Length: 5000\r\n\r\n").encode())
            head = '{"prompt": "' + "a" * 100
        for byte in head.encode():
            writer.write(bytes([byte]))
            await asyncio.sleep(0.002)
        self.hold(writer)

    async def garbage(self) -> None:
        """Send bytes that are no HTTP."""
        reader, writer = await self.opened()
        writer.write(self.draw.randbytes(self.draw.choice([1, 100, 100_000])) + b"\r\n\r\n")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await reader.read(100)
        writer.transport.abort()

    async def tiny_chunks(self) -> None:
        """Send a body in chunks of one byte."""
        reader, writer = await self.opened()
        head = HEAD.format("completions") + "Transfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode() + b"1\r\na\r\n" * 100_000 + b"0\r\n\r\n")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await reader.read(100)
        writer.transport.abort()

    async def pipe(self) -> None:
        """Send many requests without waiting for an answer."""
        reader, writer = await self.opened()
        writer.write(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await reader.read(1000)
        writer.transport.abort()

    async def deaf(self) -> None:
        """Ask for much and take nothing of it."""
        _path, data = bodies(self.draw, min(self.window, 600))["echo"]
        _reader, writer = await self.posted(data * 3)
        writer.transport.pause_reading()
        self.hold(writer)

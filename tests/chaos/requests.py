"""Hostile requests to `recollect serve`: refused or cut off; an honest client sees no change."""

from __future__ import annotations

import json
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from recollect.config.presets import DEMO_MODEL
from tests.chaos.invariants import Findings, bad_manners
from tests.chaos.process import Command, start, wait_until
from tests.support.hostile import NASTY
from tests.support.wire_fuzz import nearly_http

PATHS = ("/v1/chat/completions", "/v1/completions")
ODD: tuple[Any, ...] = (None, [], {}, -1, 0, 1e308, 10**30, "x", True, [[]], NASTY[0], NASTY[3])
FIELDS = ("model", "prompt", "messages", "n", "max_tokens", "temperature", "top_p", "stop", "seed",
          "stream", "logprobs", "tools", "echo", "best_of", "logit_bias")  # fmt: skip
HONEST = {"messages": [{"role": "user", "content": "Say it."}], "max_tokens": 6, "temperature": 0}


def _post(path: str, body: bytes, *headers: str) -> bytes:
    head = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
        "",
        "",
    ]
    return "\r\n".join(head).encode() + body


def _odd_fields(draw: random.Random) -> bytes:
    body: dict[str, Any] = {**HONEST, "prompt": [1]}
    for name in draw.sample(FIELDS, draw.randint(1, 4)):
        body[name] = draw.choice(ODD)
    return _post(draw.choice(PATHS), json.dumps(body).encode())


def _many(draw: random.Random) -> bytes:
    body = {"prompt": [[1]] * draw.choice([200, 20_000]), "n": 128}
    return _post(PATHS[1], json.dumps(body).encode())


def _long(draw: random.Random) -> bytes:
    message = {"role": "user", "content": "long " * draw.choice([10**4, 10**6])}
    return _post(PATHS[0], json.dumps({"messages": [message]}).encode())


REQUESTS: dict[str, Callable[[random.Random], bytes]] = {
    "odd fields": _odd_fields,
    "many prompts": _many,
    "a long text": _long,
    "noise": lambda draw: draw.randbytes(draw.randint(1, 5000)),
    "noise as JSON": lambda draw: _post(draw.choice(PATHS), draw.randbytes(300)),
    "deep JSON": lambda draw: _post(draw.choice(PATHS), b"[" * 200_000),
    "a long number": lambda draw: _post(PATHS[0], b'{"n": ' + b"9" * 5000 + b"}"),
    "half a head": lambda draw: b"POST /v1/completions HTTP/1.1\r\nHost:",
    "half a body": lambda draw: _post(PATHS[0], b"{}").replace(b"Length: 2", b"Length: 99999"),
    "negative length": lambda draw: _post(PATHS[0], b"{}").replace(b"Length: 2", b"Length: -2"),
    "two lengths": lambda draw: _post(PATHS[0], b"{}", "Content-Length: 7"),
    "a bad chunk": lambda draw: (
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}"
    ),
    "a huge head": lambda draw: b"GET /health HTTP/1.1\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    "another method": lambda draw: b"BREW /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "nearly HTTP": lambda draw: b"".join(nearly_http(draw)),
    "a path outside": lambda draw: b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@dataclass
class Served:
    """A server under attack, and what it says to an honest client."""

    url: str
    command: Command
    said: str = ""
    complained: int = 0
    """Characters of its output that were looked at."""

    def complaints(self) -> list[str]:
        """Return what it printed since the last look, which is nothing if all is well."""
        printed = self.command.printed
        new, self.complained = printed[self.complained :].strip(), len(printed)
        return [f"the server printed {new[:300]} ... {new[-700:]}"] if new else []

    def ask(self) -> str:
        """Send the honest request; return the reply's text."""
        reply = _talk(self.url, _post(PATHS[0], json.dumps(HONEST).encode(), "Connection: close"))
        head, _, body = reply.partition(b"\r\n\r\n")
        assert b" 200 " in head.split(b"\r\n")[0], reply[:300]
        return str(json.loads(body)["choices"][0]["message"]["content"])


@contextmanager
def serving(base: Path) -> Iterator[Served]:
    """Serve the demo's model while the block runs; it must end as it is asked to."""
    ready = base / "ready"
    limits = ("--limits.head-seconds", "2", "--limits.body-seconds", "2", "--cache-gib", "0.1")
    arguments = ["serve", str(DEMO_MODEL), "--port", "0", "--ready-file", str(ready), *limits]
    command = start(arguments, base)
    assert wait_until(lambda: ready.exists() and ready.read_text().strip(), 90, command)
    server = Served(ready.read_text().strip(), command)
    server.said = server.ask()
    assert wait_until(lambda: "serving" in command.printed, 10, command)
    server.complaints()  # its address
    try:
        yield server
    finally:
        command.send(signal.SIGTERM)
        wrong = bad_manners(*command.wait(60), allowed={128 + signal.SIGTERM})
        assert not wrong, wrong


def attack(server: Served, draw: random.Random) -> tuple[Findings, list[float]]:
    """Send a few hostile requests; then the server must answer as before."""
    said: list[str] = []
    for _ in range(8):
        name = draw.choice(list(REQUESTS))
        reply = _talk(server.url, REQUESTS[name](draw), draw.choice([0.02, 0.02, 0.3, 0.3, 3.0]))
        status = reply.split(b" ")[1:2]
        if status and status[0].startswith(b"5"):
            said.append(f"{name}: {reply[:200]!r}")
        if b"Traceback" in reply or b"/site-packages/" in reply:
            said.append(f"{name} shows code: {reply[-300:]!r}")
    began = time.monotonic()
    if not server.command.alive:
        return Findings(said=[*said, "the server ended"]), []
    again = server.ask()
    took = time.monotonic() - began
    changed = [] if again == server.said else [f"{again!r} for {server.said!r}"]
    return Findings(changed=changed, said=said + server.complaints()), [took]


def _talk(url: str, request: bytes, seconds: float = 30.0) -> bytes:
    """Send bytes and read until the other side closes or time is over."""
    address = urlsplit(url)
    reply = b""
    try:
        with socket.create_connection((address.hostname, address.port), 5) as connection:
            connection.settimeout(seconds)
            connection.sendall(request)
            while block := connection.recv(1 << 16):
                reply += block
    except OSError:  # it was cut off, as some of these should be
        pass
    return reply

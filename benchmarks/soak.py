"""`recollect serve` under an hour of mixed load: honest clients, hostile ones, and a stopwatch.

First the server is left alone and its quiet figures are taken. Then, for as long as is asked for,
a second process sends what servers are attacked with (too many choices, texts of megabytes, prompts
that fill the window, heads and bodies that never end, bytes that are no HTTP, clients that leave)
while this one asks for /health and makes short chats, one after the other. Shown are percentiles of
both, quiet and under load, and the server's memory over time.

    python benchmarks/soak.py MODEL [--minutes 60] [--attackers 2] [--kinds long echo ...]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import psutil

from recollect.policies.http import Wire, WireError

QUIET_SECONDS = 8.0
CHAT = {"messages": [{"role": "user", "content": "Say OK."}], "max_tokens": 16, "temperature": 0}
HEAD = "POST /v1/{} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@dataclass
class Probe:
    """What a client that does nothing wrong saw."""

    health: list[float] = field(default_factory=list)
    """Seconds."""
    chats: list[float] = field(default_factory=list)
    refused: Counter[int] = field(default_factory=Counter)
    """Chats that were answered with another status than 200, which are to be tried again."""
    memory: list[float] = field(default_factory=list)
    """MiB of the server."""


# --- what honest clients do ----------------------------------------------------------------------


async def probe(url: str, pid: int, seconds: float) -> Probe:
    """Ask for /health and make short chats for so long."""
    seen = Probe()
    ends = time.monotonic() + seconds
    root, api = Wire(url.removesuffix("/v1")), Wire(url)
    server = psutil.Process(pid)

    async def health() -> None:
        while time.monotonic() < ends:
            started = time.perf_counter()
            response = await root.send("GET", "/health", seconds=30)
            assert response.status == 200
            seen.health.append(time.perf_counter() - started)
            seen.memory.append(server.memory_info().rss / 2**20)
            await asyncio.sleep(0.05)

    async def chat() -> None:
        body = json.dumps(CHAT).encode()
        while time.monotonic() < ends:
            started = time.perf_counter()
            response = await api.send("POST", "/chat/completions", body, seconds=120)
            if response.status == 200:
                seen.chats.append(time.perf_counter() - started)
            else:
                seen.refused[response.status] += 1
                await asyncio.sleep(0.2)

    await asyncio.gather(health(), chat())
    for wire in (root, api):
        wire.close()
    return seen


# --- what hostile ones do ------------------------------------------------------------------------


def bodies(draw: random.Random, window: int) -> dict[str, tuple[str, dict[str, object] | bytes]]:
    """Return requests that ask for too much, or for as much as is allowed."""
    long = [draw.randrange(200) for _ in range(window - 20)]
    text = "hello " * 700_000
    return {
        "choices": ("completions", {"prompt": [[1]] * 1000, "n": 128}),
        "prompts": ("completions", b'{"prompt": [' + b"[1]," * 20_000 + b"[1]]}"),
        "values": ("completions", b'{"prompt": [' + b"1," * 500_000 + b"1]}"),
        "text": ("completions", {"prompt": text}),
        "chat": ("chat/completions", {"messages": [{"role": "user", "content": text}]}),
        "messages": ("chat/completions", b'{"messages": [' + b"{}," * 9000 + b"{}]}"),
        "deep": ("completions", b'{"prompt": ' + b"[" * 10_000 + b"]" * 10_000 + b"}"),
        "long": ("completions", {"prompt": long, "max_tokens": 8}),
        "echo": ("completions", {"prompt": long, "max_tokens": 0, "echo": True, "logprobs": 5}),
        "many": ("completions", {"prompt": [5, 6], "n": 32, "max_tokens": 64}),
    }


async def attack(url: str, ends: float, seed: int, window: int, only: Sequence[str] = ()) -> None:
    """Send hostile requests until the end, one after the other, and hold some connections open."""
    draw = random.Random(seed)
    parts = urlsplit(url)
    held: list[asyncio.StreamWriter] = []
    known = bodies(draw, window)

    async def opened() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(parts.hostname, parts.port)

    async def whole() -> None:
        path, body = known[draw.choice(list(known))]
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await Wire(url).send("POST", f"/{path}", data, seconds=60)

    async def leaver() -> None:
        path, body = known[draw.choice(["long", "many", "echo", "text"])]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(draw.random() * 0.2):
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                await Wire(url).send("POST", f"/{path}", data)

    async def holder() -> None:
        _reader, writer = await opened()
        half = HEAD.format("completions")
        whole = half + 'Content-Length: 5000\r\n\r\n{"prompt": "'
        writer.write(draw.choice(["", half[:30], half, whole]).encode())
        held.append(writer)
        if len(held) > 200:
            held.pop(0).transport.abort()

    async def garbage() -> None:
        reader, writer = await opened()
        writer.write(draw.randbytes(draw.choice([1, 100, 100_000])) + b"\r\n\r\n")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await reader.read(100)
        writer.transport.abort()

    kinds: list[Callable[[], Awaitable[None]]] = [whole, whole, leaver, holder, garbage]
    if only:
        known = {name: known[name] for name in only}
        kinds = [whole]
    while time.time() < ends:
        with contextlib.suppress(WireError, OSError):
            await draw.choice(kinds)()
        await asyncio.sleep(0.01)


def _attack(url: str, ends: float, attackers: int, window: int, only: Sequence[str]) -> None:
    async def all_of_them() -> None:
        await asyncio.gather(*(attack(url, ends, seed, window, only) for seed in range(attackers)))

    asyncio.run(all_of_them())


# --- the run -------------------------------------------------------------------------------------


@contextlib.contextmanager
def server(model: Path, *more: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run `recollect serve` in a process of its own."""
    with TemporaryDirectory() as folder:
        ready = Path(folder) / "ready"
        command = [sys.executable, "-m", "recollect.cli", "serve", str(model), "--port", "0"]
        command += ["--ready-file", str(ready), "--threads", "1", *more]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not ready.exists():
                if process.poll() is not None:
                    raise RuntimeError("the server has ended")
                time.sleep(0.05)
            yield ready.read_text().strip(), process
        finally:
            process.terminate()
            process.wait(30)


def soak(
    url: str,
    pid: int,
    seconds: float,
    attackers: int,
    window: int,
    quiet: float = QUIET_SECONDS,
    only: Sequence[str] = (),
) -> tuple[Probe, Probe]:
    """Return what an honest client saw of the server left alone, and under attack."""
    asyncio.run(probe(url, pid, min(2.0, quiet)))  # the first requests are slower
    alone = asyncio.run(probe(url, pid, quiet))
    context = multiprocessing.get_context("spawn")
    args = (url, time.time() + seconds, attackers, window, only)
    process = context.Process(target=_attack, args=args)
    process.start()
    try:
        time.sleep(min(3.0, seconds / 4))
        return alone, asyncio.run(probe(url, pid, seconds - min(3.0, seconds / 4)))
    finally:
        process.terminate()
        process.join()


def percentile(values: list[float], share: float) -> float:
    """Return the value below which a share of all lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def show(name: str, seen: Probe) -> None:
    """Print one line each for /health and chats, and how memory went."""
    for what, values in (("/health", seen.health), ("chat", seen.chats)):
        figures = "  ".join(
            f"p{round(100 * share)} {1000 * percentile(values, share):.0f}"
            for share in (0.5, 0.9, 0.99)
        )
        print(f"{name:6} {what:8} n {len(values):6}  {figures}  max {1000 * max(values):.0f} ms")
    tenth = max(1, len(seen.memory) // 10)
    early, late = (sum(part) / tenth for part in (seen.memory[:tenth], seen.memory[-tenth:]))
    print(f"{name:6} memory   {early:.0f} MiB at first, {late:.0f} at the end,"
          f" {max(seen.memory):.0f} at most; chats refused {dict(seen.refused)}")  # fmt: skip


def main() -> None:
    """Run the soak and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--attackers", type=int, default=2)
    parser.add_argument("--window", type=int, default=4096)
    parser.add_argument("--kinds", nargs="*", default=[], help="only these requests")
    options = parser.parse_args()
    with server(options.model) as (url, process):
        seconds, window = 60 * options.minutes, options.window
        alone, loaded = soak(
            url, process.pid, seconds, options.attackers, window, only=options.kinds
        )
    show("quiet", alone)
    show("loaded", loaded)


if __name__ == "__main__":
    main()

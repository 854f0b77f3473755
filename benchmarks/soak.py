"""`recollect serve` under an hour of mixed load: honest clients, hostile ones, and a stopwatch.

First the server is left alone and its quiet figures are taken. Then, for as long as is asked for,
a second process sends what servers are attacked with (`benchmarks/attacks.py`) while this one asks
for /health and makes short chats, one after the other. Shown are percentiles of both, quiet and
under load, and the server's memory over time.

    python -m benchmarks.soak MODEL [--minutes 60] [--attackers 2] [--kinds long echo ...]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from benchmarks.attacks import Attacker
from recollect.policies.http import Wire

QUIET_SECONDS = 8.0
CHAT = {"messages": [{"role": "user", "content": "Say OK."}], "max_tokens": 16, "temperature": 0}


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
    cores: float = 0.0
    """Processors that the server kept busy."""
    said: set[str] = field(default_factory=set)
    """What the chats were answered, which is one text: they are greedy."""
    attacked: Counter[int] = field(default_factory=Counter)
    """How often the attackers were answered with each status."""


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
                seen.said.add(json.loads(response.body)["choices"][0]["message"]["content"])
            else:
                seen.refused[response.status] += 1
                await asyncio.sleep(0.2)

    async def report() -> None:
        """Say every minute how far it is: an hour is long."""
        while (left := ends - time.monotonic()) > 60:
            await asyncio.sleep(60)
            at, chats = seen.memory[-1], seen.chats[-100:]
            took = f"last chats p50 {1000 * percentile(chats, 0.5):.0f} ms" if chats else ""
            print(f"{left / 60:.0f} min left, {at:.0f} MiB {took}", file=sys.stderr, flush=True)

    before, began = sum(server.cpu_times()[:2]), time.monotonic()
    await asyncio.gather(health(), chat(), report())
    seen.cores = (sum(server.cpu_times()[:2]) - before) / (time.monotonic() - began)
    for wire in (root, api):
        wire.close()
    return seen


# --- what hostile ones do ------------------------------------------------------------------------


def _attack(
    url: str, seconds: float, attackers: int, window: int, only: Sequence[str], told: Any
) -> None:
    """Attack for so long, in a process of its own; tell when it begins, and the statuses."""
    os.nice(10)  # who attacks a real server has another machine's processor
    ends = time.time() + seconds
    told.put("begun")

    async def one(attacker: Attacker) -> None:
        while (left := ends - time.time()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await attacker.attack()
            await asyncio.sleep(0.01)

    async def all_of_them() -> Counter[int]:
        some = [Attacker(url, seed, window, only) for seed in range(attackers)]
        await asyncio.gather(*map(one, some))
        return sum((attacker.statuses for attacker in some), Counter())

    told.put(dict(asyncio.run(all_of_them())))


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
    told = context.Queue()
    args = (url, seconds, attackers, window, only, told)
    process = context.Process(target=_attack, args=args)
    process.start()
    try:
        told.get(timeout=120)  # it imports first, which on a busy machine takes as long as a test
        time.sleep(min(3.0, seconds / 4))
        loaded = asyncio.run(probe(url, pid, seconds - min(3.0, seconds / 4)))
        loaded.attacked.update(told.get(timeout=30))
        return alone, loaded
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
    tenths = [seen.memory[i * len(seen.memory) // 10] for i in range(10)] + seen.memory[-1:]
    print(f"{name:6} memory   {' '.join(f'{mib:.0f}' for mib in tenths)} MiB over the time,"
          f" {max(seen.memory):.0f} at most; chats refused {dict(seen.refused)}")  # fmt: skip
    print(f"{name:6} cores    {seen.cores:.2f}")
    if seen.attacked:
        print(f"{name:6} attacks  answered {dict(sorted(seen.attacked.items()))}")


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

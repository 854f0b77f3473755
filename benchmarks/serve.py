"""`recollect serve` beside `transformers serve` and llama.cpp's server, on one model.

Every client sends one chat after another, all clients at once; each chat is streamed, has a prompt
of its own and asks for the most likely tokens. The servers run one after the other in every round,
with as many threads each, while the others are idle. Shown are the medians over the rounds: chats
and tokens per second, the time to the first token (median and worst), the longest that /health took
meanwhile, and tokens per second of the server's own processor time. The servers are compared by the
last, which other work on the machine does not change.

    python benchmarks/serve.py MODEL [--clients 1 8 32] [--peers transformers transformers-cb llama]

`transformers-cb` is `transformers serve --continuous-batching`. The peers may live in another
environment (`--peer-python`); `llama` is llama-cpp-python's server and needs `--gguf FILE`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

PLACES = ("the harbour", "the old mill", "the market", "a lighthouse", "the north road")
STARTS = "from transformers.cli.transformers import main; main()"


@dataclass(frozen=True)
class Chat:
    """One chat as its client saw it."""

    first: float
    """Seconds to the first piece of text."""
    total: float
    text: str


@dataclass(frozen=True)
class Round:
    """What a server did with one number of clients."""

    chats_per_s: float
    tokens_per_s: float
    first_p50: float
    first_max: float
    cpu_tokens_per_s: float
    """Tokens per second of the server's own processor time: what an idle machine would give."""
    health_max: float
    """The longest that /health took to answer meanwhile."""


@dataclass(frozen=True)
class Server:
    """A server that answers."""

    url: str
    model: str
    process: psutil.Process

    @property
    def cpu(self) -> float:
        """Seconds of processor time that it has used."""
        times = self.process.cpu_times()
        return times.user + times.system


def command(peer: str, args: argparse.Namespace, port: int) -> list[str]:
    """Return what starts a server."""
    python, place = args.peer_python, ["--port", str(port), "--host", "127.0.0.1"]
    if peer == "recollect":
        own = [sys.executable, "-m", "recollect.cli", "serve", args.model, *place]
        return [*own, "--threads", str(args.threads), "--device", "cpu"]
    if peer == "llama":
        llama = ["--model", args.gguf, "--n_threads", str(args.threads), "--n_ctx", "2048"]
        return [python, "-m", "llama_cpp.server", *llama, *place]
    more = ["--continuous-batching"] if peer == "transformers-cb" else []
    serve = ["serve", args.model, "--dtype", "float32", "--device", "cpu", *place]
    return [python, "-c", STARTS, *serve, *more]


@contextmanager
def running(peer: str, args: argparse.Namespace) -> Iterator[Server]:
    """Start a server, wait until it answers, and stop it in the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = Path(args.logs) / f"{peer}.log"
    environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads), "HF_HUB_OFFLINE": "1"}
    with log.open("w") as file:
        process = subprocess.Popen(
            command(peer, args, port), stdout=file, stderr=file, env=environment
        )
    url = f"http://127.0.0.1:{port}/v1"
    # `transformers serve` lists what is in its cache of downloads, and fails without one.
    alive = "/health" if peer != "llama" else "/v1/models"
    try:
        ends = time.monotonic() + 120
        while True:
            try:
                httpx.get(url.removesuffix("/v1") + alive, timeout=30).raise_for_status()
                break
            except httpx.HTTPError:
                if process.poll() is not None or time.monotonic() > ends:
                    sys.exit(f"{peer} does not start: see {log}")
                time.sleep(0.5)
        yield Server(url, served_name(url, peer, args), psutil.Process(process.pid))
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def chat(client: httpx.AsyncClient, body: dict[str, Any]) -> Chat:
    """Stream one chat."""
    started = time.perf_counter()
    first, pieces = 0.0, []
    async with client.stream("POST", "/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            for choice in json.loads(line[6:]).get("choices", []):
                if piece := choice["delta"].get("content"):
                    first = first or time.perf_counter() - started
                    pieces.append(piece)
    return Chat(first, time.perf_counter() - started, "".join(pieces))


async def load(
    server: Server, clients: int, args: argparse.Namespace, salt: int
) -> tuple[list[Chat], list[float]]:
    """Let all clients send their chats; return them and how long /health took meanwhile."""

    def body(number: int) -> dict[str, Any]:
        story = " ".join(
            f"On day {i} boat {number * 7 + i} went to {PLACES[(number + i) % 5]} with {i} sacks."
            for i in range(args.sentences)
        )
        content = f"Log {salt}-{number}. {story} Tell the story of these boats again, at length."
        return {
            "model": server.model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": args.tokens,
            "temperature": 0.0,
            "stream": True,
        }

    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=server.url, timeout=600, limits=limits) as client:

        async def one(index: int) -> list[Chat]:
            return [await chat(client, body(index * args.chats + i)) for i in range(args.chats)]

        asking = asyncio.create_task(health(server.url))
        lists = await asyncio.gather(*map(one, range(clients)))
        asking.cancel()
        waits = (await asyncio.gather(asking, return_exceptions=True))[0]
    return [each for chats in lists for each in chats], waits


async def health(url: str) -> list[float]:
    """Ask again and again whether the server is well, until cancelled; return how long it took."""
    waits: list[float] = []
    started = 0.0
    async with httpx.AsyncClient(timeout=600) as client:
        try:
            while True:
                started = time.perf_counter()
                await client.get(url.removesuffix("/v1") + "/health")
                waits.append(time.perf_counter() - started)
                started = 0.0
                await asyncio.sleep(0.1)
        except asyncio.CancelledError:  # an answer that has not come counts as well
            return [*waits, time.perf_counter() - started] if started else waits


def measure(server: Server, clients: int, args: argparse.Namespace, salt: int) -> Round:
    """Load a server once."""
    started, cpu = time.perf_counter(), server.cpu
    chats, waits = asyncio.run(load(server, clients, args, salt))
    seconds, cpu = time.perf_counter() - started, server.cpu - cpu
    tokens = sum(len(args.tokenizer(c.text, add_special_tokens=False).input_ids) for c in chats)
    firsts = [c.first for c in chats]
    return Round(
        len(chats) / seconds,
        tokens / seconds,
        statistics.median(firsts),
        max(firsts),
        tokens / cpu,
        max(waits, default=0.0),
    )


def served_name(url: str, peer: str, args: argparse.Namespace) -> str:
    """Return the model's id; `transformers serve` lists what is cached, not what it loaded."""
    if peer.startswith("transformers"):
        return args.model
    return httpx.get(url + "/models", timeout=30).json()["data"][0]["id"]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument(
        "--peers",
        nargs="*",
        default=["transformers-cb"],
        choices=["transformers", "transformers-cb", "llama"],
    )
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--gguf", default="")
    parser.add_argument("--chats", type=int, default=2, help="per client")
    parser.add_argument("--tokens", type=int, default=32, help="per chat, at most")
    parser.add_argument("--sentences", type=int, default=8, help="of the prompt, 14 tokens each")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--logs", default="/tmp")
    args = parser.parse_args()

    from transformers import AutoTokenizer

    args.model = str(Path(args.model).resolve())
    args.tokenizer = AutoTokenizer.from_pretrained(
        args.model, local_files_only=True, trust_remote_code=False
    )
    names = ["recollect", *args.peers]
    print(
        f"{'clients':>7}  {'server':16} {'chats/s':>8} {'tokens/s':>9} {'first p50':>10}"
        f" {'first max':>10} {'health max':>10} {'tokens/CPU s':>12}  against recollect"
    )
    with ExitStack() as servers:
        started = {name: servers.enter_context(running(name, args)) for name in names}
        for name in names:  # the first request loads or warms up what the server left for it
            measure(started[name], 1, args, salt=-1)
        for clients in args.clients:
            rounds: dict[str, list[Round]] = {name: [] for name in names}
            for number in range(args.rounds):
                for name in names:
                    salt = clients * 100 + number
                    rounds[name].append(measure(started[name], clients, args, salt))
            show(clients, rounds)


def show(clients: int, rounds: dict[str, list[Round]]) -> None:
    """Print the medians of every server."""
    ours = statistics.median(r.cpu_tokens_per_s for r in rounds["recollect"])
    fields = (
        "chats_per_s",
        "tokens_per_s",
        "first_p50",
        "first_max",
        "cpu_tokens_per_s",
        "health_max",
    )
    for name, measured in rounds.items():
        chats, tokens, first, worst, own, health = (
            statistics.median(getattr(r, field) for r in measured) for field in fields
        )
        print(
            f"{clients:7}  {name:16} {chats:8.2f} {tokens:9.1f} {first:9.2f}s {worst:9.2f}s"
            f" {health * 1000:7.0f} ms {own:12.1f}  {own / ours:.2f}x",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""Requests per second and CPU time of our endpoint client, beside a raw one and httpx.

    python benchmarks/endpoint_client.py

One scripted server, in a process of its own, answers every request after the same latency with the
tokens of a completion. All clients send the same bytes. `raw` is the least that asyncio needs:
a kept-alive stream per worker, one write, one read, `json.loads`. `ours` is `EndpointPolicy.sample`
with all that it checks. The clients take turns in every round, so that a busy machine slows all of
them; figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from recollect.policies.client import Client, Endpoint
from recollect.policies.served import EndpointPolicy
from recollect.types import Sampling

Call = Callable[[], Awaitable[Any]]
VOCABULARY = 151_936


def serve(latency: float, prompt: list[int], tokens: int, ready: Any) -> None:
    """Answer every request with one completion, `latency` seconds after its last byte."""
    ids = [(7919 * i) % VOCABULARY for i in range(tokens)]
    choice = {
        "index": 0,
        "text": "word " * tokens,
        "token_ids": ids,
        "prompt_token_ids": prompt,
        "logprobs": {"tokens": ["word"] * tokens, "token_logprobs": [-0.25] * tokens},
        "finish_reason": "stop",
    }
    body = json.dumps({"id": "1", "object": "text_completion", "choices": [choice]}).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    answer = answer % len(body) + body

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.data = transport, b""

        def data_received(self, data: bytes) -> None:
            self.data += data
            head = self.data.find(b"\r\n\r\n")
            if head < 0:
                return
            lower = self.data[:head].lower()
            size = int(lower.split(b"content-length:")[1].split(b"\r\n")[0])
            if len(self.data) >= head + 4 + size:
                self.data = self.data[head + 4 + size :]
                asyncio.get_running_loop().call_later(latency, self.transport.write, answer)

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
        ready.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def raw_client(port: int, data: bytes) -> Call:
    """Return the least that a client can do."""
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

    async def call() -> Any:
        if idle:
            reader, writer = idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(data) + data)
        got = await reader.readuntil(b"\r\n\r\n")
        size = int(got.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        answer = json.loads(await reader.readexactly(size))
        idle.append((reader, writer))
        return answer

    return call


def httpx_client(url: str, data: bytes) -> Call | None:
    """Return httpx's, in the version that the openai package brings, or None."""
    try:
        import httpx2 as httpx
    except ImportError:
        try:
            import httpx  # type: ignore[no-redef]
        except ImportError:
            return None
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    client = httpx.AsyncClient(limits=limits, timeout=300)
    headers = {"Content-Type": "application/json"}

    async def call() -> Any:
        return json.loads((await client.post(url, content=data, headers=headers)).content)

    return call


async def measure(call: Call, clients: int, count: int) -> tuple[float, float]:
    """Let so many clients make calls; return calls per second, and CPU milliseconds per call."""
    left = iter(range(count))

    async def client() -> None:
        for _ in left:
            await call()

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(client() for _ in range(clients)))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return count / wall, 1000 * cpu / count


async def compare(port: int, prompt: list[int], args: argparse.Namespace) -> None:
    """Print one line per number of clients."""
    url = f"http://127.0.0.1:{port}/v1"
    endpoint = Client(Endpoint(url, concurrency=4096))
    policy = EndpointPolicy(endpoint, "tiny", VOCABULARY, (VOCABULARY - 1,))
    sampling = Sampling(max_tokens=args.tokens)
    data = json.dumps(policy.body(prompt, sampling), separators=(",", ":")).encode()

    async def raw() -> Any:
        json.dumps(policy.body(prompt, sampling), separators=(",", ":")).encode()
        return await plain()

    plain = raw_client(port, data)
    calls: dict[str, Call] = {"raw": raw, "ours": lambda: policy.sample(prompt, sampling)}
    if httpx := httpx_client(f"{url}/completions", data):
        calls["httpx"] = httpx
    shown = "".join(f"{name + ' req/s':>14}{'CPU ms':>8}" for name in calls)
    print(f"{'clients':>8}{shown}{'ours/raw':>10}")
    for clients in args.clients:
        count = max(32, round(args.seconds * clients / args.latency))
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
        ratios = []
        for turn in range(args.rounds + 1):
            order = list(calls.items())
            for name, call in order if turn % 2 else order[::-1]:
                found[name].append(await measure(call, clients, count))
            ratios.append(found["ours"][-1][0] / found["raw"][-1][0])
        # The first round opens the connections.
        middle = {
            name: [statistics.median(column) for column in zip(*rounds[1:], strict=True)]
            for name, rounds in found.items()
        }
        line = "".join(f"{rate:14.1f}{cpu:8.2f}" for rate, cpu in middle.values())
        print(f"{clients:8}{line}{statistics.median(ratios[1:]):10.1%}", flush=True)
    endpoint.close()


def main() -> None:
    """Start the server, compare, and end it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--latency", type=float, default=0.05, help="seconds of the server")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--prompt", type=int, default=1000, help="tokens")
    parser.add_argument("--tokens", type=int, default=64, help="of a reply")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round, at best")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    prompt = [(104_729 * i) % VOCABULARY for i in range(args.prompt)]
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    server = context.Process(
        target=serve, args=(args.latency, prompt, args.tokens, ready), daemon=True
    )
    server.start()
    try:
        print(
            f"latency {1000 * args.latency:g} ms, prompts of {args.prompt} tokens, replies of"
            f" {args.tokens}; medians of {args.rounds} rounds"
        )
        asyncio.run(compare(ready.get(timeout=60), prompt, args))
    finally:
        server.terminate()


if __name__ == "__main__":
    main()

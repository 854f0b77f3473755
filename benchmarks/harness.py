"""The evaluation harness against a scripted server that takes 50 ms for every reply.

Measured: how much of the asked-for concurrency is kept busy (the requests that the server
holds, on average from the first request to the last reply), the harness's own CPU time per model
call, and how its memory grows over the episodes. The server has a process of its own; with
`--before` the same is measured with an older checkout's code, in turns.

    python -m benchmarks.harness [--episodes 10000] [--concurrency 128 512] [--workers 1 2]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from recollect.agents.fold import FoldAgent, FoldPrompts
from recollect.evaluation.folder import EvaluationFolder
from recollect.evaluation.harness import Harness
from recollect.evaluation.models import open_models
from recollect.evaluation.options import EvalOptions
from recollect.evaluation.progress import Progress
from recollect.evaluation.setup import set_up
from recollect.tasks.base import Split
from recollect.types import Question, Task

LATENCY = 0.050
REPLY = json.dumps(
    {
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Maria's fruit is now \\boxed{plum}."},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 160, "completion_tokens": 12},
    }
).encode()


@dataclass(frozen=True)
class Diary:
    """Tasks that cost nothing to make: three sections of 140 characters."""

    name: ClassVar[str] = "diary"
    metric: ClassVar[str] = "sub_exact_match"

    def size(self, split: Split) -> int | None:
        """Say that there is no end."""
        return None

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Write the index between words that do not matter."""
        chunks = tuple(f"{i}: {index} went home early. " + "It rained. " * 10 for i in range(3))
        question = Question(f"What did {index} do?", ("plum",), evidence=(1,))
        return Task(f"diary-{index}", chunks, (question,), self.name)

    def longer(self, times: int) -> Diary:
        """Return the same."""
        return self


READER = FoldAgent(None, 64, 64, prompts=FoldPrompts())


class Served(asyncio.Protocol):
    """One connection; requests on it come one after another."""

    latency = LATENCY
    calls = flying = 0
    first = last = area = 0.0
    """When the first request came and the last reply went; requests held, times seconds."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.data = bytearray()

    def data_received(self, data: bytes) -> None:
        self.data += data
        end = self.data.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self.data[:end]).lower()
        at = head.find(b"content-length:")
        size = int(head[at + 15 :].split(b"\r\n")[0]) if at >= 0 else 0
        if len(self.data) < end + 4 + size:
            return
        self.data.clear()
        if head.startswith(b"get /stats"):
            seconds = Served.last - Served.first
            told = {"calls": Served.calls, "seconds": seconds, "area": Served.area}
            self.say(json.dumps(told).encode())
            Served.calls = 0
            Served.first = Served.last = Served.area = 0.0
        elif head.startswith(b"get"):
            self.say(b'{"data": [{"id": "scripted", "object": "model"}]}')
        else:
            self.change(1)
            asyncio.get_running_loop().call_later(Served.latency, self.answer)

    def answer(self) -> None:
        Served.calls += 1
        self.change(-1)
        self.say(REPLY)

    def change(self, by: int) -> None:
        """Note that one request more or less is held."""
        now = time.perf_counter()
        Served.first = Served.first or now
        Served.area += Served.flying * (now - (Served.last or now))
        Served.flying += by
        Served.last = now

    def say(self, body: bytes) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def serve(port: Any, latency: float = LATENCY) -> None:
    """Serve until killed; put the port where the other process sees it."""
    Served.latency = latency

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Served, "127.0.0.1", 0, backlog=1024)
        port.value = server.sockets[0].getsockname()[1]
        await server.serve_forever()

    asyncio.run(main())


def stats(url: str) -> dict[str, Any]:
    """Ask the server what it saw since it was last asked."""
    with urllib.request.urlopen(url.replace("/v1", "/stats")) as reply:
        return json.load(reply)


def resident() -> float:
    """Return this process's memory in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def measure(url: str, concurrency: int, episodes: int, workers: int) -> dict[str, float]:
    """Run an evaluation as `recollect eval` does, and say how it went."""
    from recollect.display import open_console

    # Like MemAgent's reader: three sections and a question, a prompt of some hundred tokens each.
    options = EvalOptions(
        ("benchmarks.harness:Diary",),
        url,
        ("benchmarks.harness:READER",),
        n=episodes,
        concurrency=concurrency,
        closed_book=False,
    )
    setup, opened = set_up(options, {}), open_models(options)
    progress = Progress(open_console(), setup.grid.cells(), setup.primary, "benchmark")
    memory: list[float] = []

    def on_episode(record: dict[str, Any]) -> None:
        progress.episode(record)
        if progress.done % 200 == 0:
            memory.append(resident())

    with tempfile.TemporaryDirectory() as folder:
        store = EvaluationFolder(Path(folder))
        stats(url)
        before = spent()
        run: Any = Harness(setup.grid, setup.agents, opened.models, store, concurrency)
        if workers > 1:
            from recollect.evaluation.workers import Workers

            run = Workers(options, opened.facts, setup.grid, store, workers, time.time())
        with progress:
            asyncio.run(run.run(on_episode))
        cpu = spent() - before
        store.close()
    seen = stats(url)
    late = memory[len(memory) // 5 :]  # the first fifth warms up
    slope = np.polyfit(np.arange(len(late)) * 0.2, late, 1)[0] if len(late) > 2 else float("nan")
    return {
        "concurrency": concurrency,
        "workers": workers,
        "calls": seen["calls"],
        "calls_per_second": seen["calls"] / seen["seconds"],
        "busy": seen["area"] / (seen["seconds"] * concurrency),
        "cpu_ms_per_call": 1000 * cpu / seen["calls"],
        "mib_at_end": memory[-1] if memory else resident(),
        "mib_per_1000_episodes": slope,
    }


def spent() -> float:
    """Return the CPU seconds of this process and of those it started and that have ended."""
    own, others = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def measure_apart(source: Path, *given: object) -> dict[str, float]:
    """Measure in a new process, with the code of a checkout."""
    command = [sys.executable, "-c", ONE, *map(str, given)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source / "src"), os.getcwd()])}
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1])


ONE = """
import json, sys
from benchmarks.harness import measure
url, *numbers = sys.argv[1:]
print(json.dumps(measure(url, *map(int, numbers))))
"""


def main() -> None:
    """Measure and print one line for each setting, again in every round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[128])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--latency", type=float, default=LATENCY, help="seconds for a reply")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--before", type=Path, help="an older checkout, measured with one process")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    port = context.Value("i", 0)
    server = context.Process(target=serve, args=(port, options.latency), daemon=True)
    server.start()
    while not port.value:
        time.sleep(0.01)
    url = f"http://127.0.0.1:{port.value}/v1"
    here = Path(__file__).resolve().parents[1]
    kinds = [("now", here, workers) for workers in options.workers]
    if options.before:
        kinds.insert(0, ("before", options.before, 1))
    for _round in range(options.rounds):
        for concurrency in options.concurrency:
            for name, source, workers in kinds:
                found = measure_apart(source, url, concurrency, options.episodes, workers)
                shown = "  ".join(f"{key} {value:.4g}" for key, value in found.items())
                print(f"{name:6} {shown}", flush=True)
    server.terminate()


if __name__ == "__main__":
    main()

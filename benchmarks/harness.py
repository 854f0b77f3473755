"""The evaluation harness against a scripted server that takes 50 ms for every reply.

Measured: how much of the asked-for concurrency is kept busy (the requests that the server
holds, on average from the first request to the last reply), the CPU time per model call of the
harness and of the server, and how the memory of the process that keeps the folder grows. The server
has processes of its own; with `--before` the same is measured with an older checkout, in turns.

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
from collections.abc import Sequence
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


CALLS, FLYING, FIRST, LAST, AREA, CPU, STARTED, SLOTS = range(8)
"""What a serving process notes: calls, requests held, when the first request came and the last
reply went, requests held times seconds, and its CPU seconds at both moments."""


class Served(asyncio.Protocol):
    """One connection; requests on it come one after another."""

    latency = LATENCY
    notes: Any = ()
    """What all serving processes note, one after another."""
    own = 0
    """Where this process's notes begin."""

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
        asked = self.data[end + 4 :]
        self.data.clear()
        if head.startswith(b"get"):
            self.say(b'{"data": [{"id": "scripted", "object": "model"}]}')
        elif b'"Say OK."' in asked:  # how it can be asked, before any episode
            self.say(REPLY)
        else:
            self.change(1)
            asyncio.get_running_loop().call_later(Served.latency, self.answer)

    def answer(self) -> None:
        Served.notes[Served.own + CALLS] += 1
        self.change(-1)
        self.say(REPLY)

    def change(self, by: int) -> None:
        """Note that one request more or less is held."""
        notes, own, now = Served.notes, Served.own, time.perf_counter()
        if not notes[own + FIRST]:
            notes[own + FIRST], notes[own + STARTED] = now, time.process_time()
        notes[own + AREA] += notes[own + FLYING] * (now - (notes[own + LAST] or now))
        notes[own + FLYING] += by
        notes[own + LAST] = now
        notes[own + CPU] = time.process_time()

    def say(self, body: bytes) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def serve(port: Any, notes: Any, own: int, latency: float) -> None:
    """Serve until killed; the first process puts the port where the others see it."""
    Served.latency, Served.notes, Served.own = latency, notes, own

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            Served, "127.0.0.1", port.value, backlog=1024, reuse_port=True
        )
        port.value = server.sockets[0].getsockname()[1]
        await server.serve_forever()

    asyncio.run(main())


def seen(notes: Any) -> dict[str, float]:
    """Add up what the serving processes noted, and let them begin anew."""
    rows = [notes[at : at + SLOTS] for at in range(0, len(notes), SLOTS)]
    begun = [row for row in rows if row[FIRST]]
    found = {
        "calls": sum(row[CALLS] for row in rows),
        "seconds": max(row[LAST] for row in begun) - min(row[FIRST] for row in begun),
        "area": sum(row[AREA] for row in rows),
        "cpu": sum(row[CPU] - row[STARTED] for row in begun),
    }
    for at in range(0, len(notes), SLOTS):
        notes[at : at + SLOTS] = [0.0] * SLOTS
    return found


def resident() -> float:
    """Return this process's memory in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def measure(url: str, concurrency: int, episodes: int, workers: int) -> dict[str, float]:
    """Run an evaluation as `recollect eval` does, and say what it took."""
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
        before = spent()
        run: Any = Harness(setup.grid, setup.agents, opened.models, store, concurrency)
        if workers > 1:
            from recollect.evaluation.workers import Workers

            run = Workers(options, opened.facts, setup.grid, store, workers, run.started)
        with progress:
            asyncio.run(run.run(on_episode))
        cpu = spent() - before
        store.close()
    late = memory[len(memory) // 5 :]  # the first fifth warms up
    slope = np.polyfit(np.arange(len(late)) * 0.2, late, 1)[0] if len(late) > 2 else float("nan")
    return {"cpu": cpu, "mib": memory[-1] if memory else resident(), "slope": slope}


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


COLUMNS = (
    *("code", "concurrency", "workers", "calls", "calls/s", "busy %"),
    *("harness ms/call", "server ms/call", "server cores", "MiB", "MiB/1000 episodes"),
)


def row(name: str, concurrency: int, workers: int, took: dict, noted: dict) -> list[str]:
    """Write what was measured, column by column."""
    calls, seconds = noted["calls"], noted["seconds"]
    return [
        *(name, str(concurrency), str(workers), f"{calls:.0f}", f"{calls / seconds:.0f}"),
        f"{100 * noted['area'] / (seconds * concurrency):.1f}",
        *(f"{1000 * took['cpu'] / calls:.3f}", f"{1000 * noted['cpu'] / calls:.3f}"),
        f"{noted['cpu'] / seconds:.2f}",
        *(f"{took['mib']:.0f}", f"{took['slope']:+.2f}"),
    ]


def show(cells: Sequence[str]) -> None:
    """Print one line of the table."""
    widths = (len(column) for column in COLUMNS)
    shown = (f"{cell:>{max(6, width)}}" for cell, width in zip(cells, widths, strict=True))
    print("  ".join(shown), flush=True)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[128])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--latency", type=float, default=LATENCY, help="seconds for a reply")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--before", type=Path, help="an older checkout, measured with one process")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--servers", type=int, default=max(1, cores // 4), help="processes that serve"
    )
    return parser.parse_args()


def main() -> None:
    """Measure and print one line for each setting, again in every round."""
    options = arguments()
    context = multiprocessing.get_context("spawn")
    port, notes = context.Value("i", 0), context.RawArray("d", SLOTS * options.servers)
    servers = []
    for number in range(options.servers):
        given = (port, notes, SLOTS * number, options.latency)
        servers.append(context.Process(target=serve, args=given, daemon=True))
        servers[-1].start()
        while not port.value:
            time.sleep(0.01)
    url = f"http://127.0.0.1:{port.value}/v1"
    here = Path(__file__).resolve().parents[1]
    kinds = [("now", here, workers) for workers in options.workers]
    if options.before:
        kinds.insert(0, ("before", options.before, 1))
    print(f"{len(os.sched_getaffinity(0))} cores; {options.servers} serving processes, ", end="")
    print(f"{1000 * options.latency:g} ms a reply; {options.episodes} episodes of 4 calls")
    show(COLUMNS)
    for _round in range(options.rounds):
        for concurrency in options.concurrency:
            for name, source, workers in kinds:
                took = measure_apart(source, url, concurrency, options.episodes, workers)
                show(row(name, concurrency, workers, took, seen(notes)))
    for server in servers:
        server.terminate()


if __name__ == "__main__":
    main()

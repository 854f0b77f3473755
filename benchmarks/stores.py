"""A trial's memory store beside LangGraph's InMemoryStore, LanceDB and Chroma.

A trial needs a store of its own over a common base. Ours forks the base; the others copy it, and
LanceDB can also clone a table that shares files. Then come 50 mixed operations: 20 searches (the
nearest 5 by cosine), 12 creations, 10 updates, 8 deletions. All stores get the same texts and the
same vectors (384 dimensions, looked up in a dictionary): nobody's time holds an embedding model.
Every search is compared with brute force over what the trial should hold. LangGraph stands here
twice: with lists of floats, as its interface asks for, and with numpy rows, which are faster.

    python benchmarks/stores.py [--sizes 1000 100000] [--peers langgraph lancedb chroma]

A store that is not installed is left out, with a line that says so. After half a minute of
operations a store is given no more of them; what is shown are medians per operation, and their sum
for 50.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from store_peers import TOP_K, Peer, Vectors, peers

BUDGET = 30.0
KINDS = ["search"] * 20 + ["create"] * 12 + ["update"] * 10 + ["delete"] * 8


@dataclass(frozen=True)
class Step:
    """One operation; `key` is the entry it is about, `text` what is sought or written."""

    kind: str
    key: str
    text: str


def steps(size: int, seed: int, vectors: Vectors) -> Iterator[Step]:
    """Make 50 operations on a base of this size; every key is live when it is used."""
    rng = random.Random(seed)
    live, made = {f"memory_{i}" for i in range(1, size + 1)}, size
    touched: list[str] = []
    for n, kind in enumerate(rng.sample(KINDS, len(KINDS))):
        text = f"seed {seed} step {n} {kind}"
        vectors.add([text])
        if kind == "create":
            made += 1
            key = f"memory_{made}"
            live.add(key)
        else:
            # Half of the edits are of what the trial itself has written.
            own = [k for k in touched if k in live]
            base = f"memory_{rng.randint(1, size)}"
            key = rng.choice(own) if own and (rng.random() < 0.5 or base not in live) else base
        if kind == "delete":
            live.discard(key)
        if kind in ("create", "update"):
            touched.append(key)
        yield Step(kind, key, text)


class Truth:
    """What a trial should hold, searched by brute force in double precision."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows, self.own, self.gone = rows, dict[str, np.ndarray](), set[str]()

    def search(self, query: np.ndarray) -> list[str]:
        base = self.rows.astype(np.float64) @ query.astype(np.float64)
        scores = {f"memory_{i + 1}": base[i] for i in np.argsort(-base)[: TOP_K + 50]}
        scores = {k: v for k, v in scores.items() if k not in self.gone and k not in self.own}
        scores |= {key: float(row.astype(np.float64) @ query) for key, row in self.own.items()}
        return sorted(scores, key=lambda key: -scores[key])[:TOP_K]

    def apply(self, step: Step, row: np.ndarray) -> None:
        if step.kind == "delete":
            self.gone.add(step.key)
            self.own.pop(step.key, None)
        elif step.kind != "search":
            self.own[step.key] = row


@dataclass(frozen=True)
class Result:
    """What one store took, in seconds."""

    name: str
    open: float
    kinds: dict[str, float]
    """Median per kind of operation."""
    fifty: float
    exact: float
    """Share of searches that equal brute force."""


def openings(peer: Peer, most: int = 200, seconds: float = 3.0) -> tuple[list[float], Any]:
    """Time how long opening a trial takes, again and again; return the last trial too."""
    times: list[float] = []
    while True:
        at = time.perf_counter()
        trial = peer.open()
        times.append(time.perf_counter() - at)
        if len(times) == most or sum(times) > seconds:
            return times, trial
        peer.close(trial)


def timed(peer: Peer, trial: Any, step: Step, times: dict[str, list[float]]) -> Any:
    """Do one operation and note how long it took."""
    at = time.perf_counter()
    if step.kind == "search":
        found = peer.search(trial, step.text)
    elif step.kind == "delete":
        found = peer.delete(trial, step.key)
    else:
        found = getattr(peer, step.kind)(trial, step.key, step.text)
    times.setdefault(step.kind, []).append(time.perf_counter() - at)
    return found


def compared(done: list[tuple[Step, Any]], truth: Truth, vectors: Vectors) -> list[bool]:
    """Say for every search whether brute force finds the same."""
    right = []
    for step, found in done:
        if step.kind == "search":
            right.append(found == truth.search(vectors.of[step.text]))
        truth.apply(step, vectors.of[step.text])
    return right


def measure(peer: Peer, size: int, rows: np.ndarray, vectors: Vectors, trials: int) -> Result:
    """Open trials and run 50 operations in each, until the time is used up."""
    opened, trial = openings(peer)
    times: dict[str, list[float]] = {}
    right: list[bool] = []
    started = time.perf_counter()
    for seed in range(trials):
        if seed:
            trial = peer.open()
        done: list[tuple[Step, Any]] = []
        for step in list(steps(size, seed, vectors)):
            done.append((step, timed(peer, trial, step, times)))
            used_up = time.perf_counter() - started > BUDGET
            if used_up and len(times) == 4 and min(map(len, times.values())) >= 3:
                break
        peer.close(trial)
        right += compared(done, Truth(rows), vectors)
        if time.perf_counter() - started > BUDGET:
            break
    kinds = {kind: statistics.median(each) for kind, each in times.items()}
    fifty = sum(kinds[kind] for kind in KINDS)
    return Result(peer.name, statistics.median(opened), kinds, fifty, statistics.mean(right))


def show_head(size: int) -> None:
    """Print what the columns mean."""
    print(f"\n{size:,} base memories; milliseconds, medians; in brackets: times ours", flush=True)
    titles = ("open", *dict.fromkeys(KINDS), "50 operations", "exact")
    print(f"{'store':36}" + "".join(f"{title:>21}" for title in titles), flush=True)


def show(result: Result, ours: Result) -> None:
    """Print one row."""
    pairs = [(result.open, ours.open)]
    pairs += [(result.kinds[kind], ours.kinds[kind]) for kind in dict.fromkeys(KINDS)]
    pairs += [(result.fifty, ours.fifty)]
    cells = [f"{1000 * a:,.3f} ({a / b:,.0f}x)" for a, b in pairs]
    row = "".join(f"{cell:>21}" for cell in cells)
    print(f"{result.name:36}{row}{result.exact:>21.0%}", flush=True)


def main() -> None:
    """Measure every size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--peers", nargs="*", default=["langgraph", "lancedb", "chroma"])
    parser.add_argument("--trials", type=int, default=5)
    options = parser.parse_args()
    rng = random.Random(0)
    vocabulary = [f"word{i}" for i in range(5000)]
    for size in options.sizes:
        vectors = Vectors()
        texts = [f"{i} " + " ".join(rng.choices(vocabulary, k=20)) for i in range(size)]
        rows = vectors.add(texts)
        show_head(size)
        ours: Result | None = None
        for peer in peers(options.peers, texts, rows, vectors):
            result = measure(peer, size, rows, vectors, options.trials)
            ours = ours or result
            show(result, ours)


if __name__ == "__main__":
    main()

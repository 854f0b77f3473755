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
import importlib.util
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from recollect.memory.corpus import Corpus
from recollect.memory.entries import Draft
from recollect.memory.trials import MemoryStoreManager, Trial

DIM, TOP_K, BUDGET = 384, 5, 30.0
KINDS = ["search"] * 20 + ["create"] * 12 + ["update"] * 10 + ["delete"] * 8


@dataclass(frozen=True)
class Step:
    """One operation; `key` is the entry it is about, `text` what is sought or written."""

    kind: str
    key: str
    text: str


@dataclass
class Vectors:
    """The embedding everyone uses: one random unit vector per text."""

    of: dict[str, np.ndarray] = field(default_factory=dict)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def add(self, texts: list[str]) -> np.ndarray:
        texts = [text for text in texts if text not in self.of]
        rows = self.rng.standard_normal((len(texts), DIM), np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        self.of.update(zip(texts, rows, strict=True))
        return rows


class Peer(Protocol):
    """A store that holds the base and can open trials of it."""

    name: str

    def open(self) -> Any: ...
    def search(self, trial: Any, query: str) -> list[str]: ...
    def create(self, trial: Any, key: str, text: str) -> None: ...
    def update(self, trial: Any, key: str, text: str) -> None: ...
    def delete(self, trial: Any, key: str) -> None: ...
    def close(self, trial: Any) -> None: ...


def finished(job: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits, as an agent's `await` does: without a loop of its own."""
    try:
        job.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("it waited")


class Recollect:
    """A leased copy-on-write fork."""

    name = "recollect"

    def __init__(self, texts: list[str], rows: np.ndarray, vectors: Vectors) -> None:
        async def embed(asked: Any, kind: str = "document") -> np.ndarray:
            return np.array([vectors.of[text] for text in asked])

        drafts = [Draft(text) for text in texts]
        self.manager = MemoryStoreManager({"base": Corpus.build("base", drafts, rows)}, embed)

    def open(self) -> Trial:
        return self.manager.open("base")

    def search(self, trial: Trial, query: str) -> list[str]:
        return [hit.entry.id for hit in finished(trial.search(query, TOP_K, "dense"))]

    def create(self, trial: Trial, key: str, text: str) -> None:
        assert trial.add(text).id == key

    def update(self, trial: Trial, key: str, text: str) -> None:
        trial.update(key, text)

    def delete(self, trial: Trial, key: str) -> None:
        trial.delete(key)

    def close(self, trial: Trial) -> None:
        trial.close()


class LangGraph:
    """InMemoryStore, filled by one batch of puts."""

    def __init__(self, texts: list[str], rows: np.ndarray, vectors: Vectors, arrays: bool) -> None:
        from langgraph.store.base import PutOp

        self.name = "LangGraph InMemoryStore" + (", numpy rows" if arrays else "")
        lists = {} if arrays else {text: row.tolist() for text, row in vectors.of.items()}
        self.embed: Callable[[Any], Any] = lambda asked: (
            [vectors.of[t] for t in asked]
            if arrays
            else [lists[t] if t in lists else vectors.of[t].tolist() for t in asked]
        )
        self.puts = [
            PutOp(("trial",), f"memory_{i}", {"content": text})
            for i, text in enumerate(texts, start=1)
        ]

    def open(self) -> Any:
        from langgraph.store.memory import InMemoryStore

        store = InMemoryStore(index={"dims": DIM, "embed": self.embed, "fields": ["content"]})
        store.batch(self.puts)
        return store

    def search(self, trial: Any, query: str) -> list[str]:
        return [item.key for item in trial.search(("trial",), query=query, limit=TOP_K)]

    def create(self, trial: Any, key: str, text: str) -> None:
        trial.put(("trial",), key, {"content": text})

    update = create

    def delete(self, trial: Any, key: str) -> None:
        trial.delete(("trial",), key)

    def close(self, trial: Any) -> None:
        pass


class LanceDB:
    """A table on disk without an index, so that its search is exact too."""

    def __init__(self, texts: list[str], rows: np.ndarray, vectors: Vectors, clone: bool) -> None:
        import lancedb
        import pyarrow as pa

        self.name = "LanceDB, " + ("shallow clone" if clone else "copied")
        self.clone, self.vectors, self.count = clone, vectors, 0
        self.folder = tempfile.mkdtemp()
        self.db = lancedb.connect(self.folder)
        flat = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), DIM)
        ids = [f"memory_{i}" for i in range(1, len(texts) + 1)]
        self.table = pa.table({"id": ids, "content": texts, "vector": flat})
        self.db.create_table("base", self.table)

    def open(self) -> Any:
        self.count += 1
        name = f"trial_{self.count}"
        if self.clone:
            return self.db.clone_table(name, f"{self.folder}/base.lance")
        return self.db.create_table(name, self.table)

    def search(self, trial: Any, query: str) -> list[str]:
        asked = trial.search(self.vectors.of[query]).distance_type("cosine").limit(TOP_K)
        return asked.select(["id", "_distance"]).to_arrow().column("id").to_pylist()

    def create(self, trial: Any, key: str, text: str) -> None:
        trial.add([{"id": key, "content": text, "vector": self.vectors.of[text]}])

    def update(self, trial: Any, key: str, text: str) -> None:
        values = {"content": text, "vector": self.vectors.of[text].tolist()}
        trial.update(where=f"id = '{key}'", values=values)

    def delete(self, trial: Any, key: str) -> None:
        trial.delete(f"id = '{key}'")

    def close(self, trial: Any) -> None:
        self.db.drop_table(trial.name)

    def __del__(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class Chroma:
    """A collection in memory; its search is approximate."""

    name = "Chroma, in memory"

    def __init__(self, texts: list[str], rows: np.ndarray, vectors: Vectors) -> None:
        import chromadb

        self.texts, self.rows, self.vectors, self.count = texts, rows, vectors, 0
        self.client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))

    def open(self) -> Any:
        self.count += 1
        setting = {"hnsw": {"space": "cosine"}}
        name = f"trial-{self.count}"
        trial = self.client.create_collection(name, configuration=setting, embedding_function=None)
        most = self.client.get_max_batch_size()
        for at in range(0, len(self.texts), most):
            part = slice(at, at + most)
            ids = [f"memory_{i + 1}" for i in range(at, min(at + most, len(self.texts)))]
            trial.add(ids=ids, embeddings=self.rows[part], documents=self.texts[part])
        return trial

    def search(self, trial: Any, query: str) -> list[str]:
        asked = [self.vectors.of[query]]
        return trial.query(query_embeddings=asked, n_results=TOP_K, include=[])["ids"][0]

    def create(self, trial: Any, key: str, text: str) -> None:
        trial.add(ids=[key], embeddings=[self.vectors.of[text]], documents=[text])

    def update(self, trial: Any, key: str, text: str) -> None:
        trial.update(ids=[key], embeddings=[self.vectors.of[text]], documents=[text])

    def delete(self, trial: Any, key: str) -> None:
        trial.delete(ids=[key])

    def close(self, trial: Any) -> None:
        self.client.delete_collection(trial.name)


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


def peers(asked: list[str], texts: list[str], rows: np.ndarray, vectors: Vectors) -> Iterator[Peer]:
    """Make the stores that are installed, ours first."""
    yield Recollect(texts, rows, vectors)
    makers: dict[str, list[Callable[[], Peer]]] = {
        "langgraph": [
            lambda: LangGraph(texts, rows, vectors, False),
            lambda: LangGraph(texts, rows, vectors, True),
        ],
        "lancedb": [
            lambda: LanceDB(texts, rows, vectors, False),
            lambda: LanceDB(texts, rows, vectors, True),
        ],
        "chroma": [lambda: Chroma(texts, rows, vectors)],
    }
    for name in asked:
        if importlib.util.find_spec("chromadb" if name == "chroma" else name) is None:
            print(f"{name} is not installed: left out")
            continue
        for make in makers[name]:
            yield make()


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

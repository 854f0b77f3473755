"""The stores that are compared, behind one protocol: ours, LangGraph's, LanceDB and Chroma.

Knows nothing of what is done with them, nor of time.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from recollect.memory.corpus import Corpus
from recollect.memory.entries import Draft
from recollect.memory.leases import MemoryStoreManager, Trial

DIM, TOP_K = 384, 5


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

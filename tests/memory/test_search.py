"""Search: the answer over base and edits is the answer of an index built from the live entries."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.errors import UserError
from recollect.memory.corpus import Corpus
from recollect.memory.entries import BadOperation, Draft, Entry, Filter
from recollect.memory.search import fuse
from recollect.memory.store import Hit, Store
from recollect.memory.terms import words
from tests.support import hashing

VOCABULARY = [f"w{i}" for i in range(40)]
SPEAKERS, SESSIONS = ("Ann", "Bob", "Cy"), tuple(f"session_{i}" for i in range(1, 5))


def draft(rng: random.Random) -> Draft:
    # A small vocabulary with a steep slope: common words, rare words, and exact duplicates.
    picks = [VOCABULARY[int(40 * rng.random() ** 3)] for _ in range(rng.randint(1, 9))]
    metadata = {"speaker": rng.choice(SPEAKERS), "session": rng.choice(SESSIONS)}
    return Draft(" ".join(picks), metadata)


def edited(seed: int, n: int = 60, edits: int = 25) -> Store:
    """Return a store over a random base, edited and searched in between."""
    rng = random.Random(seed)
    drafts = [draft(rng) for _ in range(n)]
    base = Corpus.build("random", drafts, hashing.matrix([d.content for d in drafts]))
    store = Store(base, hashing.embed)
    for _ in range(edits):
        kind, new = rng.choice(["add", "update", "delete", "search"]), draft(rng)
        live = [entry.id for entry in store]
        if kind == "add" or not live:
            store.add(new.content, new.metadata)
        elif kind == "update":
            store.update(rng.choice(live), new.content, new.metadata)
        elif kind == "delete":
            store.delete(rng.choice(live))
        else:
            find(store, new.content, mode="hybrid")
    return store


def find(store: Store, query: str, top_k: int = 7, mode="dense", where=Filter()) -> list[Hit]:
    return asyncio.run(store.search(query, top_k, mode, where))


def found(hits: list[Hit]) -> list[tuple[str, float]]:
    return [(hit.entry.id, hit.score) for hit in hits]


def cut(scores: list[tuple[Entry, float]], top_k: int) -> list[tuple[str, float]]:
    scores.sort(key=lambda pair: (-pair[1], int(pair[0].id.removeprefix("memory_"))))
    return [(entry.id, score) for entry, score in scores[:top_k]]


def dense_by_hand(entries: list[Entry], query: str, top_k: int) -> list[tuple[str, float]]:
    q = hashing.vector(query).astype(np.float64)
    rows = [(e, float((hashing.vector(e.content).astype(np.float64) * q).sum())) for e in entries]
    return cut(rows, top_k)


def bm25_by_hand(live: list[Entry], allowed: list[Entry], query: str, top_k: int):
    bags = {entry.id: Counter(words(entry.content)) for entry in live}
    mean = sum(bag.total() for bag in bags.values()) / len(bags)
    scores = []
    for entry in allowed:
        bag, score = bags[entry.id], 0.0
        for word in words(query):
            df = sum(word in other for other in bags.values())
            idf = math.log(1 + (len(bags) - df + 0.5) / (df + 0.5))
            score += idf * bag[word] / (bag[word] + 1.5 * (0.25 + 0.75 * bag.total() / mean))
        if score > 0:
            scores.append((entry, round(score, 9)))
    return cut(scores, top_k)


def allowed_by_hand(entries: list[Entry], where: Filter) -> list[Entry]:
    return [
        entry
        for entry in entries
        if (not where.speaker or entry.metadata["speaker"] in where.speaker)
        and (not where.session or entry.metadata["session"] in where.session)
    ]


FILTERS = st.builds(
    Filter,
    speaker=st.lists(st.sampled_from(SPEAKERS), max_size=2).map(tuple),
    session=st.lists(st.sampled_from(SESSIONS), max_size=2).map(tuple),
)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 20), FILTERS, st.integers(0, 60))
def test_search_after_edits_equals_brute_force(seed, top_k, where, n):
    store, query = edited(seed, n), draft(random.Random(seed + 1)).content
    live = list(store)
    allowed = allowed_by_hand(live, where)
    dense = found(find(store, query, top_k, "dense", where))
    assert dense == dense_by_hand(allowed, query, top_k)
    bm25 = found(find(store, query, top_k, "bm25", where))
    rounded = [(id, round(score, 9)) for id, score in bm25]
    assert rounded == (bm25_by_hand(live, allowed, query, top_k) if live else [])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["dense", "bm25", "hybrid"]), FILTERS)
def test_edits_give_the_very_bits_of_a_fresh_index(seed, mode, where):
    store, query = edited(seed), draft(random.Random(seed + 1)).content
    live = list(store)
    drafts = [Draft(entry.content, entry.metadata) for entry in live]
    base = Corpus.build("fresh", drafts, hashing.matrix([d.content for d in drafts]))
    fresh = find(Store(base, hashing.embed), query, 10, mode, where)
    names = {f"memory_{i}": entry.id for i, entry in enumerate(live, start=1)}
    expected = [(names[id], score) for id, score in found(fresh)]
    assert found(find(store, query, 10, mode, where)) == expected


def test_bm25_scores_are_those_of_bm25s():
    store = edited(3, n=200, edits=60)
    live, query = list(store), "w1 w7 w20 w20"
    oracle = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    oracle.index([words(entry.content) for entry in live], show_progress=False)
    scores = oracle.get_scores(words(query))
    ours = dict(found(find(store, query, len(live), "bm25")))
    for entry, score in zip(live, scores, strict=True):
        assert ours.get(entry.id, 0.0) == pytest.approx(score, rel=1e-5, abs=1e-6)


def test_equal_vectors_come_in_the_order_of_their_ids():
    drafts = [Draft("the same text") for _ in range(500)]
    base = Corpus.build("same", drafts, hashing.matrix([d.content for d in drafts]))
    store = Store(base, hashing.embed)
    store.update("memory_3", "the same text")
    store.add("the same text")
    store.delete("memory_1")
    expected = [f"memory_{i}" for i in range(2, 502)]
    for k in (1, 5, 499, 600):
        assert [id for id, _ in found(find(store, "text", k))] == expected[:k]


def test_fusion_rewards_agreement():
    assert fuse([[(1, 9.0), (2, 8.0)], [(2, 3.0), (3, 1.0)]], 3) == [
        (2, 1 / 62 + 1 / 61),
        (1, 1 / 61),
        (3, 1 / 62),
    ]


def test_many_updates_of_one_entry_do_not_pile_up():
    store = edited(5)
    one = store.add("w1")
    for i in range(400):
        store.update(one.id, f"w{i} w1")
        if i % 3 == 0:
            find(store, "w1")
    assert found(find(store, "w399")) == dense_by_hand(list(store), "w399", 7)
    assert len(store._edits.slots().numbers) < 200


def test_searches_of_one_trial_at_the_same_time():
    """A slow embedder: edits and rebuilds happen while vectors are on their way."""

    async def slow(texts, kind="document"):
        await asyncio.sleep(random.Random(len(texts)).random() / 100)
        return hashing.matrix(texts)

    store = edited(9)
    store._embed = slow

    async def worker(n: int) -> None:
        for i in range(60):
            entry = store.add(f"w{n} w{i % 40}")
            await store.search(f"w{n}", mode="hybrid")
            if i % 2:
                store.delete(entry.id)

    async def run() -> None:
        await asyncio.gather(*(worker(n) for n in range(6)))

    asyncio.run(run())
    assert found(find(store, "w3 w4")) == dense_by_hand(list(store), "w3 w4", 7)


def test_a_base_without_vectors_says_so():
    store = Store(Corpus.build("plain", [Draft("a word")]), hashing.embed)
    assert found(find(store, "word", mode="bm25"))
    with pytest.raises(UserError, match="no vectors"):
        find(store, "word")


def test_an_empty_base_can_be_filled_and_searched():
    store = Store(Corpus.build("empty"), hashing.embed)
    assert find(store, "word") == [] and find(store, "word", mode="hybrid") == []
    store.add("a word")
    assert [hit.entry.id for hit in find(store, "word", mode="hybrid")] == ["memory_1"]


@pytest.mark.parametrize("query, top_k", [("", 5), (" ", 5), ("\ud800", 5), ("x", 0), ("x", True)])
def test_a_bad_query_is_refused(query, top_k):
    with pytest.raises(BadOperation):
        find(edited(1), query, top_k)


@pytest.mark.parametrize("bad", [np.zeros((1, 4)), np.full((1, 4), np.nan), np.ones((2, 4))])
def test_vectors_that_cannot_be_compared_are_refused(bad):
    with pytest.raises(ValueError, match="vector"):
        Corpus.build("bad", [Draft("a word")], bad)


def test_words_of_scripts_without_spaces_are_characters():
    assert words("Hello, WORLD_2 héllo 東京 abc東京") == [
        *("hello", "world_2", "héllo", "東", "京", "abc", "東", "京")
    ]

"""Stores: what operations do, what they refuse, and that every state can be replayed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.memory.base import Memory
from recollect.memory.corpus import Corpus
from recollect.memory.entries import BadOperation, Draft, Filter
from recollect.memory.store import Store, replay
from recollect.types import MemoryOp
from tests.support import hashing

DRAFTS = [
    Draft("Maria paints boats", {"source": "observation", "speaker": "Maria"}),
    Draft("Jon runs a shop", {"source": "conversation", "speaker": "Jon", "session": "session_1"}),
    Draft("Maria sold a boat", {"source": "conversation", "evidence": ("D1:3", "D1:4")}),
]
BASE = Corpus.build("people", DRAFTS, hashing.matrix([d.content for d in DRAFTS]))


def opened() -> Store:
    return Store(BASE, hashing.embed)


def state(store: Store) -> dict[str, tuple[str, dict[str, Any]]]:
    return {entry.id: (entry.content, dict(entry.metadata)) for entry in store}


def test_a_store_is_a_memory():
    memory: Memory = opened()
    assert memory.ops == [] and memory.snapshot()["entries"] == []
    memory.fork().close()
    memory.close()


def test_the_five_operations():
    store = opened()
    added = store.add("Jon moved to Oslo", {"speaker": "Jon"}, "turn 1")
    assert added.id == "memory_4" and added.provenance.label == "turn 1"
    assert store.update("memory_1", "Maria paints ships").metadata == DRAFTS[0].metadata
    assert store.update("memory_1", metadata={"session": "session_2"}).content.endswith("ships")
    merged = store.merge(["memory_1", "memory_3"], "Maria paints and sells ships", label="turn 2")
    assert merged.provenance.parents == ("memory_1", "memory_3")
    assert merged.metadata["source"] == ("observation", "conversation")
    assert merged.metadata["evidence"] == ("D1:3", "D1:4")
    parts = store.split("memory_2", [Draft("Jon runs"), Draft("Jon has a shop", {"speaker": "J"})])
    assert [part.metadata["speaker"] for part in parts] == ["Jon", "J"]
    assert store.delete("memory_4", "turn 3").label == "turn 3"
    assert [entry.id for entry in store] == ["memory_5", "memory_6", "memory_7"]
    assert len(store) == 3 and "memory_4" not in store and "memory_6" in store
    grave = store.tombstone("memory_2")
    assert grave is not None and grave.into == ("memory_6", "memory_7")


def test_a_diff_and_growth_count_what_the_base_did_not_have():
    store = opened()
    store.add("a new memory of five")
    store.delete(store.add("never mind").id)
    store.update("memory_1", "Maria paints")
    store.delete("memory_2")
    diff = store.diff()
    assert [entry.id for entry in diff.created] == ["memory_4"]
    assert [(old.content, new.content) for old, new in diff.updated] == [
        ("Maria paints boats", "Maria paints")
    ]
    assert [entry.id for entry in diff.deleted] == ["memory_2"]
    growth = store.growth()
    assert (growth.created, growth.updated, growth.deleted) == (1, 1, 1)
    assert growth.tokens == 5 - 1 - 4 and growth.bytes > 0
    later = store.fork()
    later.delete("memory_4")
    assert later.diff(store).deleted == diff.created and not later.diff(store).updated


@pytest.mark.parametrize(
    ("kind", "data", "says"),
    [
        ("add", {"content": "  "}, "not empty"),
        ("add", {"content": 3}, "not empty"),
        ("add", {"content": "x", "metadata": {"speaker": 3}}, "'speaker'"),
        ("add", {"content": "x", "metadata": ["speaker"]}, "metadata"),
        ("add", {"content": "half a pair \ud800"}, "Unicode"),
        ("update", {"id": "memory_1"}, "needs content or metadata"),
        ("update", {"content": "x"}, "needs an id"),
        ("delete", {"id": "memory_9"}, "no 'memory_9'"),
        ("delete", {"id": "memory_01"}, "no 'memory_01'"),
        ("delete", {"id": "memory_3"}, "memory_3 was deleted"),
        ("merge", {"ids": ["memory_1"], "content": "x"}, "at least two"),
        ("merge", {"ids": ["memory_1", "memory_1"], "content": "x"}, "different"),
        ("merge", {"ids": ["memory_1", "memory_3"], "content": "x"}, "was deleted"),
        ("merge", {"ids": [["memory_1"], 2], "content": "x"}, "a list"),
        ("split", {"id": "memory_1", "parts": [{"content": "x"}]}, "at least two"),
        ("split", {"id": "memory_1", "parts": ["x", "y"]}, "needs content"),
        ("split", {"id": "memory_1", "parts": [{"content": "x"}, {}]}, "not empty"),
        ("forget", {}, "no operation 'forget'"),
    ],
)
def test_a_refused_operation_changes_nothing(kind, data, says):
    store = opened()
    store.delete("memory_3")
    before = store.snapshot()
    with pytest.raises(BadOperation, match=says):
        store.apply(MemoryOp(kind, data))
    assert store.snapshot() == before and len(store.ops) == 1


def test_a_closed_store_refuses_and_keeps_its_operations():
    store = opened()
    store.add("Jon moved")
    store.close()
    for use in (lambda: store.add("x"), store.snapshot, store.fork, store.diff, store.entries):
        with pytest.raises(RuntimeError, match="closed"):
            use()
    assert len(store.ops) == 1


def test_the_callers_data_is_not_shared():
    evidence = ["D1:1"]
    store = opened()
    store.add("Jon moved", {"evidence": evidence})
    evidence.append("D9:9")
    assert store.get("memory_4").metadata["evidence"] == ("D1:1",)
    assert store.ops[0].data["metadata"]["evidence"] == ["D1:1"]


def test_entries_are_listed_in_order_and_filtered_whatever_the_case():
    store = opened()
    store.add("Jon again", {"speaker": "Jon"})
    store.update("memory_1", metadata={"speaker": ("Maria", "Jon")})
    listed = store.entries(Filter(speaker=(" jon ",)))
    assert [entry.id for entry in listed] == ["memory_1", "memory_2", "memory_4"]
    both = Filter(speaker=("Jon", "Maria"), source=("conversation",))
    assert [entry.id for entry in store.entries(both)] == ["memory_2"]
    assert store.entries(Filter(session=("session_9",))) == []


def test_a_base_can_be_saved_and_mapped(tmp_path):
    BASE.save(tmp_path / "base")
    mapped = Corpus.open(tmp_path / "base")
    assert list(mapped) == list(BASE) and mapped.fingerprint == BASE.fingerprint
    here, there = opened(), Store(mapped, hashing.embed)
    for store in (here, there):
        store.update("memory_2", "Jon sold his shop")
    for mode in ("dense", "bm25", "hybrid"):
        assert asyncio.run(here.search("a shop", 3, mode)) == asyncio.run(
            there.search("a shop", 3, mode)
        )


# Random operations against a dictionary

TEXTS = st.text("ab ", min_size=1, max_size=6).filter(str.strip)
METADATA = st.dictionaries(st.sampled_from(["speaker", "session"]), TEXTS, max_size=2)
PARTS = st.lists(st.tuples(TEXTS, METADATA), min_size=2, max_size=3)
PICK = st.integers(0, 2**16)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), TEXTS, METADATA),
        st.tuples(st.just("update"), PICK, st.none() | TEXTS, METADATA),
        st.tuples(st.just("delete"), PICK),
        st.tuples(st.just("merge"), PICK, PICK, TEXTS, METADATA),
        st.tuples(st.just("split"), PICK, PARTS),
        st.tuples(st.just("fork")),
        st.tuples(st.just("search")),
    ),
    max_size=30,
)
Model = dict[str, tuple[str, dict[str, Any]]]


def perform(store: Store, model: Model, made: list[int], step: tuple[Any, ...]) -> None:
    """Do one step to a store, and what it means to a plain dictionary."""
    kind, *rest = step

    def new(content: str, metadata: dict[str, Any]) -> None:
        made[0] += 1
        model[f"memory_{made[0]}"] = (content, metadata)

    if kind == "add":
        store.add(*rest)
        return new(*rest)
    ids = list(model)
    if not ids or (kind == "merge" and len(ids) < 2):
        return
    id = ids[rest[0] % len(ids)]
    old = model[id]
    if kind == "update":
        store.update(id, rest[1], rest[2])
        model[id] = (rest[1] or old[0], {**old[1], **rest[2]})
    elif kind == "delete":
        store.delete(id)
        del model[id]
    elif kind == "merge":
        other = [i for i in ids if i != id][rest[1] % (len(ids) - 1)]
        united: dict[str, Any] = {}
        for key in {**old[1], **model[other][1]}:
            texts: list[str] = []
            for value in (m[key] for m in (old[1], model[other][1]) if key in m):
                texts += [value] if isinstance(value, str) else value
            texts = list(dict.fromkeys(texts))
            united[key] = (
                texts[0]
                if len(texts) == 1 and key not in _many(old, model[other])
                else tuple(texts)
            )
        store.merge([id, other], rest[2], rest[3])
        del model[id], model[other]
        new(rest[2], {**united, **rest[3]})
    elif kind == "split":
        store.split(id, [Draft(*part) for part in rest[1]])
        del model[id]
        for content, metadata in rest[1]:
            new(content, {**old[1], **metadata})


def _many(*states: tuple[str, dict[str, Any]]) -> set[str]:
    return {k for _, metadata in states for k, v in metadata.items() if not isinstance(v, str)}


@settings(max_examples=150, deadline=None)
@given(OPERATIONS)
def test_random_operations_do_what_they_do_to_a_dictionary(steps):
    store, made = opened(), [len(BASE)]
    model: Model = {e.id: (e.content, dict(e.metadata)) for e in BASE}
    for step in steps:
        if step == ("fork",):
            left = store
            store, before = left.fork(), left.snapshot()
            left.add("only in the old one")
            assert store.snapshot() == before
        elif step == ("search",):
            asyncio.run(store.search("a b", 3, "hybrid"))
        else:
            perform(store, model, made, step)
        assert state(store) == model
        assert len(store) == len(model)
    again = replay(BASE, store.ops)
    assert again.snapshot() == store.snapshot() and state(again) == model
    # Operations survive a file.
    read = [MemoryOp(**json.loads(json.dumps(vars(op)))) for op in store.ops]
    assert replay(BASE, read).snapshot() == store.snapshot()
    diff = store.diff()
    changed = {e.id: e for e in BASE}
    changed.update({e.id: e for e in diff.created} | {new.id: new for _, new in diff.updated})
    for entry in diff.deleted:
        del changed[entry.id]
    assert {i: (e.content, dict(e.metadata)) for i, e in changed.items()} == model

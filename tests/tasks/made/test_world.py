"""The made-up world: LoCoMo's schema, disjoint splits, and memories that leave something to do."""

from __future__ import annotations

import asyncio
import json

import pytest

from recollect.errors import UserError
from recollect.memory.leases import MemoryStoreManager
from recollect.memory.selection import Retrieval
from recollect.memory.store import Store
from recollect.rewards.memory_delta import MemoryDelta
from recollect.tasks.base import Split
from recollect.tasks.conversations.locomo_files import (
    LocomoOptions,
    build_locomo,
    load_corpora,
    load_tasks,
)
from recollect.tasks.made.world import World
from recollect.types import Episode, MemoryOp, Task

FAMILY = World()
SPLITS: tuple[Split, ...] = ("train", "test")


def stores() -> MemoryStoreManager:
    return MemoryStoreManager(FAMILY.corpora())


def earned(task: Task, store: Store) -> float:
    reward = MemoryDelta(retrieval=Retrieval(top_k=3))
    return asyncio.run(reward(Episode(task, 0), store)).reward


def test_the_same_seed_gives_the_same_task_and_memories():
    for split in SPLITS:
        task = FAMILY.task(7, 3, split)
        assert task == World().task(7, 3, split)
        one, two = (MemoryStoreManager(World().corpora()).open(task.id) for _ in range(2))
        assert one.corpus.fingerprint == two.corpus.fingerprint
    assert FAMILY.task(7, 4) != FAMILY.task(7, 3)


def test_the_splits_share_no_fact():
    facts = {}
    for split in SPLITS:
        tasks = [FAMILY.task(i, 0, split) for i in range(300)]
        assert len({task.id for task in tasks}) == 300
        facts[split] = {(t.questions[0].text, t.questions[0].answers) for t in tasks}
    assert not facts["train"] & facts["test"]
    assert {text for text, _ in facts["train"]} == {text for text, _ in facts["test"]}


def test_retrieval_finds_nothing_before_and_the_fact_afterwards():
    opened = stores()
    for i in range(100):
        task = FAMILY.task(i, 0, "test")
        question = task.questions[0]
        with opened.trial(task.meta["namespace"]) as store:
            assert earned(task, store) == 0.0
            (wanted,) = (
                entry
                for entry in store.entries()
                if set(task.meta["dia_ids"]) & set(entry.metadata["evidence"])
            )
            assert question.answers[0] in wanted.content
            fact = f"{question.text.split()[3]} would pick {question.answers[0]}"
            metadata = {"evidence": tuple(task.meta["dia_ids"]), "speaker": "x"}
            store.apply(MemoryOp("add", {"content": fact, "metadata": metadata}))
            assert earned(task, store) == 1.0
        with opened.trial(task.meta["namespace"]) as store:
            metadata = {"evidence": ("D1:1",)}
            store.apply(MemoryOp("add", {"content": fact, "metadata": metadata}))
            assert earned(task, store) < 1.0


def test_it_has_the_schema_of_locomo(tmp_path):
    """What the family makes up goes through `recollect data locomo` and comes back the same."""
    items = [FAMILY.conversation(i, 0, "test") for i in range(3)]
    (tmp_path / "made.json").write_text(json.dumps(items))
    names = tuple(item["sample_id"] for item in items)
    report = build_locomo(LocomoOptions(tmp_path / "made.json", tmp_path / "out", test=names))
    assert not report.problems and report.tasks == {"train": 0, "test": 18}
    read = {task.id: task for task in load_tasks(tmp_path / "out" / "test.parquet")}
    corpora = load_corpora(tmp_path / "out")
    for i in range(3):
        task = FAMILY.task(i, 0, "test")
        assert read[task.id].questions == task.questions and read[task.id].chunks == task.chunks
        assert read[task.id].meta["dia_ids"] == task.meta["dia_ids"]
        base = task.meta["sample_id"]
        assert corpora[base].fingerprint == FAMILY.corpora()[base].fingerprint


def test_longer_worlds_hold_more_to_read():
    short, long = (family.task(0, 0, "test") for family in (FAMILY, FAMILY.longer(4)))
    assert len(long.chunks) == 4 * len(short.chunks)


def test_mistakes_are_named():
    with pytest.raises(UserError, match="sessions"):
        World(sessions=0)
    with pytest.raises(UserError, match="kinds"):
        World(facts=7)
    with pytest.raises(UserError, match="no base memories"):
        stores().open("conv-26-qa1")

"""A memory that can look back: what fits a query best, whatever the order of sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.memory.history import HistoryMemory
from recollect.types import MemoryOp


def written(*texts: str) -> HistoryMemory:
    memory = HistoryMemory()
    for i, text in enumerate(texts):
        memory.replace(text, label=f"chunk {i + 1}")
    return memory


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("Where was Ada born?", "Ada was born in Oslo"),
        ("ada OSLO", "Ada was born in Oslo"),
        ("the ship's name", "The ship was lost"),
        ("ship", "Ship two was found"),  # as many words as another: the later one
        ("Quito", ""),  # it is in the present memory, which is shown anyway
        ("zinc", ""),
        ("", ""),
    ],
)
def test_the_earlier_memory_with_the_most_words(query, found):
    memory = written("Ada was born in Oslo", "The ship was lost", "Ship two was found", "Quito")
    memory.recall(query, "chunk 4")
    assert memory.recalled == found
    assert memory.ops[-1] == MemoryOp("recall", {"query": query, "text": found}, "chunk 4")


def test_versions_count_once_and_empty_or_present_ones_not_at_all():
    memory = written("a", "", "b", "a", "c", "c")
    assert memory.earlier == ["a", "b"]
    memory.replace("a")
    assert memory.earlier == ["b", "c"]
    assert memory.snapshot() == {"text": "a", "recalled": "", "earlier": ["b", "c"]}


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["a b", "b c", "c", "", "d a"]))))
def test_operations_replay_to_the_same_memory(steps):
    memory = HistoryMemory()
    for writes, text in steps:
        memory.replace(text) if writes else memory.recall(text)
    again = HistoryMemory()
    for op in memory.ops:
        again.apply(op)
    assert again == memory == memory.fork()
    fork = memory.fork()
    fork.replace("other")
    assert "other" not in [op.data["text"] for op in memory.ops]
    with pytest.raises(ValueError, match="knows no operation"):
        memory.apply(MemoryOp("forget", {}))

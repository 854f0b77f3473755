"""The memory tools: what they show, what they do, and what they say when they cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from recollect.chat.tools import Answer, Call, ToolBox
from recollect.errors import BoundaryError, UserError
from recollect.memory.corpus import Corpus
from recollect.memory.entries import Draft
from recollect.memory.store import Store, replay
from recollect.memory.tools import OPERATIONS, REFERENCE, MemoryTools
from tests.support import hashing

DRAFTS = [
    Draft(
        "Maria paints boats",
        {
            "source": "observation",
            "speaker": "Maria",
            "session": "session_1",
            "evidence": ("D1:1", "D1:2"),
            "timestamp": "8 May, 2023",
        },
    ),
    Draft("Jon runs\na shop", {"source": "conversation", "speaker": "Jon", "session": "session_2"}),
    Draft("Maria sold a boat", {"source": "conversation", "speaker": "Maria"}),
]
BASE = Corpus.build("people", DRAFTS, hashing.matrix([d.content for d in DRAFTS]))


def opened() -> Store:
    return Store(BASE, hashing.embed)


def use(store: Store, name: str, settings: MemoryTools = MemoryTools(), **arguments: Any) -> Answer:
    toolbox = ToolBox(settings.bind(store, lambda: "turn 3"))
    return asyncio.run(toolbox.answer([Call(name, arguments)]))[0]


def search(store: Store, **arguments: Any) -> str:
    return use(store, "search_memory", **arguments).text


def manage(store: Store, **arguments: Any) -> str:
    return use(store, "manage_memory", **arguments).text


def test_results_show_all_that_is_known_of_a_memory():
    assert search(opened(), query="Who paints boats?", top_k=1) == (
        "1 memory found for 'Who paints boats?':\n"
        "1. memory_1 | Maria paints boats | speaker: Maria | evidence: D1:1, D1:2"
        " | session: session_1 | time: 8 May, 2023 | source: observation"
    )


def test_everything_can_be_listed_within_filters():
    store = opened()
    lines = search(store, list_all=True).splitlines()
    assert lines[0] == "3 memories listed:" and lines[2].startswith("2. memory_2 | Jon runs a shop")
    few = MemoryTools(max_listed=1)
    listed = use(store, "search_memory", few, list_all=True).text
    assert listed.startswith("The first 1 of 3 memories listed:\n1. memory_1")
    only = search(store, list_all=True, speaker_filter="MARIA, nobody", source_filter="any")
    assert "memory_1" in only and "memory_3" in only and "memory_2" not in only
    assert "memory_3" not in search(store, query="boat", session_filter="session_1")


def test_searches_that_cannot_be_made_or_find_nothing_are_no_success():
    store = opened()
    assert "query is empty" in search(store)
    assert "top_k must be a whole number of at least 1" in search(store, query="x", top_k=0)
    nothing = use(store, "search_memory", query="zebra")
    assert (nothing.text, nothing.outcome) == ("No memories found for 'zebra'.", "failed")
    assert "(top_k is at most 50)" in search(store, query="Maria", top_k=10**30)


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_searches_go_by_meaning_where_there_are_vectors(mode):
    found = use(opened(), "search_memory", MemoryTools(mode=mode), query="Jon runs a shop")
    assert "1. memory_2" in found.text


def test_the_five_operations_and_their_provenance():
    store = opened()
    created = manage(
        store,
        operation="create",
        content="Maria sold her boat on 7 May",
        speaker="Maria",
        evidence="D1:1; D1:2,D1:1",
        session="Session_1",
    )
    assert created == "Created memory_4."
    entry = store.get("memory_4")
    assert entry.provenance.label == "turn 3" and entry.provenance.kind == "add"
    assert entry.metadata == {
        "speaker": "Maria",
        "evidence": ("D1:1", "D1:2"),
        "session": "Session_1",
        "timestamp": "8 May, 2023",
        "source": "agent_output",
    }
    assert manage(store, operation="update", memory_id="memory_2", content="Jon owns a shop") == (
        "Updated memory_2."
    )
    assert store.get("memory_2").metadata["source"] == "agent_output"
    manage(store, operation="update", memory_id="memory_3", session="session_2")
    assert store.get("memory_3").metadata["source"] == "conversation"
    merged = manage(
        store, operation="merge", memory_ids=["memory_1", "memory_3"], content="Maria and boats"
    )
    assert merged == "Merged memory_1, memory_3 into memory_5."
    split = manage(store, operation="split", memory_id="memory_5", parts=["Maria", "boats"])
    assert split == "Split memory_5 into memory_6, memory_7."
    assert store.get("memory_6").metadata["evidence"] == ("D1:1", "D1:2")
    assert manage(store, operation="delete", memory_id="memory_7") == "Deleted memory_7."
    assert [op.kind for op in store.ops] == ["add", "update", "update", "merge", "split", "delete"]
    assert {op.label for op in store.ops} == {"turn 3"}
    assert replay(BASE, store.ops).snapshot() == store.snapshot()
    assert "source: agent_output" in search(store, list_all=True, source_filter="agent_output")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"operation": "create"}, "create needs content"),
        ({"operation": "create", "content": " \n"}, "create needs content"),
        ({"operation": "create", "content": "\ud800"}, "not valid Unicode"),
        ({"operation": "update", "memory_id": "memory_9", "content": "x"}, "no 'memory_9'"),
        ({"operation": "update", "memory_id": "memory_1"}, "needs content or metadata"),
        ({"operation": "delete"}, "ids look like 'memory_1'"),
        ({"operation": "merge", "memory_ids": ["memory_1"], "content": "x"}, "at least two ids"),
        ({"operation": "split", "memory_id": "memory_1", "parts": ["x"]}, "at least two"),
        ({"operation": "forget"}, "operation must be one of 'create', 'update'"),
        ({"content": "x"}, "operation is missing"),
    ],
)
def test_what_the_store_refuses_is_answered_and_changes_nothing(arguments, said):
    store = opened()
    answer = use(store, "manage_memory", **arguments)
    assert said in answer.text and answer.outcome == "failed" and store.ops == []


def test_only_allowed_operations_are_shown_and_done():
    search_tool, manage_tool = REFERENCE.bind(opened(), lambda: "")
    assert search_tool.name == "search_memory"
    properties = manage_tool.schema["function"]["parameters"]["properties"]
    assert properties["operation"]["enum"] == ["create"]
    assert set(properties) == {"operation", "content", "speaker", "evidence", "session"}
    store = opened()
    refused = use(store, "manage_memory", REFERENCE, operation="delete")
    assert "operation must be one of 'create', not 'delete'" in refused.text
    missing = use(store, "manage_memory", REFERENCE, operation="create", content="x", speaker="M")
    assert missing.text == "Error: create needs evidence, session" and store.ops == []
    assert [tool.name for tool in MemoryTools(()).bind(store, lambda: "")] == ["search_memory"]
    full = MemoryTools().bind(store, lambda: "")[1].schema["function"]["parameters"]
    assert full["properties"]["operation"]["enum"] == list(OPERATIONS)


def test_settings_that_mean_nothing_are_refused():
    with pytest.raises(UserError, match="no memory operation 'forget'"):
        MemoryTools(("forget",))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no search mode"):
        MemoryTools(mode="smell")  # type: ignore[arg-type]


def test_a_failing_embedder_ends_the_episode_instead_of_being_answered():
    async def fails(texts: Sequence[str], kind: str = "document") -> np.ndarray:
        raise ConnectionError("no server")

    with pytest.raises(BoundaryError, match="memory: ConnectionError"):
        use(Store(BASE, fails), "search_memory", MemoryTools(mode="dense"), query="x")
    store = opened()
    store.close()
    with pytest.raises(BoundaryError, match="memory: RuntimeError"):
        use(store, "manage_memory", operation="create", content="x")

"""Banks: what operations do, what they refuse, and that every state can be replayed."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.chat.tools import Answer, Call, Limits, ToolBox
from recollect.errors import UserError
from recollect.memory.bank import BankMemory, replay
from recollect.memory.bank_tools import BankTools
from recollect.memory.base import Memory
from recollect.memory.entries import BadOperation
from recollect.memory.passages import PassageIndex, packed
from recollect.types import MemoryOp
from tests.support import hashing

titles = st.sampled_from(["a", "b", "A", "a b", "ä"])
texts = st.text(min_size=1, max_size=5).filter(str.strip)
edits = st.one_of(
    st.builds(lambda t, c: MemoryOp("add", {"title": t, "content": c}, "turn 1"), titles, texts),
    st.builds(
        lambda t, c, n: MemoryOp("update", {"title": t, "content": c, "new_title": n}),
        *(titles, texts, titles),
    ),
    st.builds(lambda t, c: MemoryOp("update", {"title": t, "content": c}), titles, texts),
    st.builds(lambda t: MemoryOp("delete", {"title": t}), titles),
    st.builds(lambda t: MemoryOp("core", {"text": t, "token_ids": (1, 2)}), st.text(max_size=4)),
)


def state(memory: BankMemory) -> tuple:
    return memory.core, memory.core_ids, list(memory.notes.items())


def attempt(memory: BankMemory, op: MemoryOp) -> None:
    before = state(memory)
    try:
        memory.apply(op)
    except BadOperation:
        assert state(memory) == before
        assert not memory.ops or memory.ops[-1] is not op


@given(st.lists(edits, max_size=25), st.lists(edits, max_size=10))
def test_replaying_the_operations_gives_the_state_and_forks_go_their_own_way(first, second):
    memory = BankMemory()
    for op in first:
        attempt(memory, op)
    assert state(replay(memory.ops)) == state(memory)
    # Stored as JSON and read back, the operations still do the same.
    stored = json.loads(json.dumps([[op.kind, op.data] for op in memory.ops]))
    assert state(replay(MemoryOp(kind, data) for kind, data in stored)) == state(memory)
    fork, before = memory.fork(), (state(memory), memory.snapshot(), list(memory.ops))
    for op in second:
        attempt(fork, op)
    assert (state(memory), memory.snapshot(), memory.ops) == before
    assert state(replay(fork.ops)) == state(fork)


def test_a_bank_is_a_memory_and_keeps_the_order_of_its_notes():
    bank = BankMemory()
    memory: Memory = bank
    bank.add("one", "1", "turn 1")
    bank.add("two", "2")
    bank.update("one", "I", "uno")
    bank.update("two", "II")
    bank.rewrite("counting", [7, 8], "turn 2")
    assert memory.snapshot() == {"core": "counting", "notes": {"uno": "I", "two": "II"}}
    assert list(bank.notes) == ["uno", "two"] and bank.core_ids == (7, 8)
    bank.delete("uno")
    assert bank.find() == {"two": "II"} and bank.find("w") == bank.find() and not bank.find("W")
    assert [(op.kind, op.label) for op in bank.ops][:2] == [("add", "turn 1"), ("add", "")]
    memory.fork().close()
    memory.close()
    with pytest.raises(ValueError, match="knows no operation 'merge'"):
        bank.apply(MemoryOp("merge", {}))


# Tools


def box(memory: BankMemory, *read: str, role: str = "memory", **settings) -> ToolBox:
    tools = BankTools(**settings)
    passages = PassageIndex(tools.passage_size, hashing.embed)
    for text in read:
        passages.read(text)
    own = tools.for_reading(memory, lambda: "turn 1")
    if role == "answer":
        own = tools.for_answering(memory, passages)
    return ToolBox(own, Limits(max_parallel_calls=99))


def ask(toolbox: ToolBox, name: str, **arguments) -> Answer:
    return asyncio.run(toolbox.answer([Call(name, arguments)]))[0]


def test_who_reads_writes_and_who_answers_searches():
    names = [tool.name for tool in box(BankMemory()).tools]
    assert names == [
        *("memory_add", "memory_update", "memory_delete", "memory_key_retrieve", "memory_list")
    ]
    names = [tool.name for tool in box(BankMemory(), role="answer").tools]
    assert names == ["memory_key_retrieve", "memory_list", "memory_bm25_retrieve"]
    names = [tool.name for tool in box(BankMemory(), role="answer", embedding=True).tools]
    assert names[-1] == "memory_embedding_retrieve"
    required = {
        tool.name: tool.schema["function"]["parameters"]["required"]
        for tool in (
            *box(BankMemory()).tools,
            *box(BankMemory(), role="answer", embedding=True).tools,
        )
    }
    assert required == {
        "memory_add": ["title", "content"],
        "memory_update": ["title", "content"],
        "memory_delete": ["title"],
        "memory_key_retrieve": ["title"],
        "memory_list": [],
        "memory_bm25_retrieve": ["query"],
        "memory_embedding_retrieve": ["query"],
    }


NOTES = {"tea": "Ada likes tea.", "Tea house": "opened " + "very " * 30 + "early"}


@pytest.mark.parametrize(
    ("name", "arguments", "outcome", "text"),
    [
        ("memory_add", {"title": "new", "content": "x"}, "ok", "Added 'new'."),
        (
            "memory_add",
            {"title": "tea", "content": "x"},
            "failed",
            "Error: there is a note 'tea' already; use memory_update to change it, or choose"
            " another title",
        ),
        ("memory_add", {"title": "x"}, "failed", "Error: memory_add: content is missing"),
        (
            "memory_add",
            {"title": " ", "content": "x"},
            "failed",
            "Error: title must be a text that is not empty",
        ),
        (
            "memory_add",
            {"title": "x", "content": "\ud800"},
            "failed",
            "Error: the text holds characters that are not valid Unicode",
        ),
        ("memory_update", {"title": "tea", "content": "x"}, "ok", "Updated 'tea'."),
        (
            "memory_update",
            {"title": "tea", "content": "x", "new_title": "milk"},
            "ok",
            "Updated 'tea', now 'milk'.",
        ),
        (
            "memory_update",
            {"title": "tea", "content": "x", "new_title": "Tea house"},
            "failed",
            "Error: there is a note 'Tea house' already",
        ),
        (
            "memory_update",
            {"title": "TEA", "content": "x"},
            "failed",
            "Error: there is no note 'TEA'; memory_list shows the titles",
        ),
        ("memory_delete", {"title": "tea"}, "ok", "Deleted 'tea'."),
        (
            "memory_delete",
            {"title": "milk"},
            "failed",
            "Error: there is no note 'milk'; memory_list shows the titles",
        ),
        ("memory_key_retrieve", {"title": "tea"}, "ok", "Ada likes tea."),
        (
            "memory_key_retrieve",
            {"title": "milk"},
            "failed",
            "Error: there is no note 'milk'; memory_list shows the titles",
        ),
        (
            "memory_list",
            {},
            "ok",
            "- tea: Ada likes tea.\n- Tea house: opened" + " very" * 14 + " ve…",
        ),
        ("memory_list", {"filter": "tea"}, "ok", "- tea: Ada likes tea."),
        ("memory_list", {"filter": "x"}, "failed", "None of 2 titles contains 'x'."),
        (
            "memory_bm25_retrieve",
            {"query": "tea"},
            "failed",
            "Error: there is no tool 'memory_bm25_retrieve', only memory_add, memory_update,"
            " memory_delete, memory_key_retrieve, memory_list",
        ),
    ],
)
def test_what_the_reader_of_a_text_can_do(name, arguments, outcome, text):
    memory = BankMemory(notes=dict(NOTES))
    answer = ask(box(memory), name, **arguments)
    assert (answer.outcome, answer.text) == (outcome, text)
    writes = outcome == "ok" and name in ("memory_add", "memory_update", "memory_delete")
    assert len(memory.ops) == writes and (memory.notes == NOTES) is not writes
    # The preview holds no more than 80 characters.
    if name == "memory_list" and outcome == "ok":
        assert all(len(line.split(": ", 1)[1]) <= 80 for line in text.split("\n"))


def test_an_empty_bank_lists_nothing_and_that_is_no_success():
    answer = ask(box(BankMemory()), "memory_list")
    assert (answer.outcome, answer.text) == ("failed", "The memory bank is empty.")


@pytest.mark.parametrize("name", ["memory_bm25_retrieve", "memory_embedding_retrieve"])
def test_searching_what_was_read(name):
    read = ("Ada likes green tea", "Ben runs", "Cleo sings about tea tea tea")
    toolbox = box(BankMemory(), *read, role="answer", embedding=True)
    found = json.loads(ask(toolbox, name, query="green tea", top_k=2).text)["results"]
    assert [result["rank"] for result in found] == [1, 2]
    assert found[0]["text"] == "Ada likes green tea" and found[0]["score"] >= found[1]["score"]
    assert ask(toolbox, name, query=" ").outcome == "failed"
    assert ask(toolbox, name, query="tea", top_k=0).outcome == "failed"
    empty = ask(box(BankMemory(), role="answer", embedding=True), name, query="tea")
    assert (empty.outcome, empty.text) == ("failed", "Error: no text has been read yet")


def test_words_that_were_not_read_are_not_found():
    toolbox = box(BankMemory(), "Ada likes tea", role="answer")
    answer = ask(toolbox, "memory_bm25_retrieve", query="coffee")
    assert (answer.outcome, answer.text) == ("failed", "No passage found for 'coffee'.")
    assert ask(toolbox, "memory_bm25_retrieve", query="!?").outcome == "failed"
    assert ask(toolbox, "memory_add", title="x", content="y").outcome == "failed"


def test_an_embedder_that_fails_ends_the_episode():
    async def broken(texts, kind="document"):
        raise OSError("gone")

    passages = PassageIndex(embed=broken)
    passages.read("Ada likes tea")
    toolbox = ToolBox(BankTools(embedding=True).for_answering(BankMemory(), passages))
    with pytest.raises(Exception, match="search: OSError: gone"):
        ask(toolbox, "memory_embedding_retrieve", query="tea")


@given(st.lists(st.text("ab ", max_size=12), max_size=12), st.integers(1, 20))
def test_passages_hold_all_of_the_text_in_pieces_of_lines(lines, size):
    text = "\n".join(lines)
    pieces = list(packed(text, size))
    assert "\n".join(pieces) == text
    assert all(len(piece) <= size or "\n" not in piece for piece in pieces)
    # As few cuts as there can be: no piece would have had room for the next line.
    for piece, following in pairwise(pieces):
        assert len(piece) + 1 + len(following.split("\n")[0]) > size


def test_impossible_tools_name_the_fix():
    with pytest.raises(UserError, match=r"--agent\.tools\.top-k to 1 or more"):
        BankTools(top_k=0)

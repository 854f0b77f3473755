"""The memory as a store of LangGraph's: the interface of its own stores, and a real agent."""

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("langgraph", reason="the extra langgraph is not installed")

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedStore, ToolNode, tools_condition
from langgraph.store.base import BaseStore, InvalidNamespaceError, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from recollect.agents.fold import FoldAgent
from recollect.errors import UserError
from recollect.keeping.users import Users
from recollect.sharing.langgraph import MemoryStore
from recollect.sharing.tools import memory_tools
from tests.commands.test_ask import respond
from tests.keeping.test_keeper import keeper
from tests.support.chat_server import chat_server


def open_keeper(shelf, calls=None):
    def said(prompt: str) -> str:
        if calls is not None:
            calls.append(prompt)
        return respond(prompt)

    return keeper(shelf, said, FoldAgent(200, 100, 100, query_aware=False))[0]


@pytest.fixture
def store(tmp_path):
    with MemoryStore(tmp_path / "store", open_keeper) as opened:
        yield opened


# An agent that is a graph: its chat model is scripted, all else is LangGraph's.


class Scripted(BaseChatModel):
    """Remembers what a person tells it, and looks up what a person asks."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs) -> ChatResult:
        last = messages[-1]
        if isinstance(last, ToolMessage):
            reply = AIMessage(last.text)
        else:
            name = "look_up" if last.text.endswith("?") else "note"
            call = {"name": name, "args": {"text": last.text}, "id": "1"}
            reply = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=reply)])


@tool
def note(text: str, store: Annotated[BaseStore, InjectedStore()]) -> str:
    """Keep a text."""
    store.put(
        ("users", "eva"), f"note {len(store.search(('users', 'eva'), limit=99))}", {"t": text}
    )
    return "noted"


@tool
def look_up(text: str, store: Annotated[BaseStore, InjectedStore()]) -> str:
    """Answer a question from what was noted."""
    return store.recall(("users", "eva"), text)["answer"]


def agent(store: BaseStore):
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [Scripted().invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([note, look_up]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(store=store)


def say(graph, text: str) -> str:
    return graph.invoke({"messages": [("user", text)]})["messages"][-1].text


KILLED = """
import os, signal, sys
from recollect.sharing.langgraph import MemoryStore
from tests.sharing.test_langgraph import agent, say
store = MemoryStore.open(*sys.argv[1:], settings=["chunk_size=100", "max_memory_tokens=99"])
assert say(agent(store), "Anna owns the house.") == "noted"
assert say(agent(store), "Her cat is called Abel.") == "noted"
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_agent_remembers_across_a_kill(tmp_path):
    with chat_server(respond) as server:
        command = [sys.executable, "-c", KILLED, str(tmp_path), server.url]
        assert subprocess.run(command, timeout=60).returncode == -9
        short = ["chunk_size=100", "max_memory_tokens=99"]
        with MemoryStore.open(tmp_path, server.url, settings=short) as store:
            graph = agent(store)
            assert say(graph, "Who lives here?") == "They are Anna Abel."
            answered = asyncio.run(graph.ainvoke({"messages": [("user", "Who else?")]}))
            assert answered["messages"][-1].text == "They are Anna Abel."
            store.delete(("users", "eva"), "note 0")
            assert say(graph, "Who lives here?") == "They are Abel."
            assert len(store.search(("users",))) == 1


LABELS = st.sampled_from(["a", "b", "c"])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
KEYS = st.sampled_from(["x", "y", "0123456789abcdef0123"])
VALUES = st.dictionaries(
    LABELS, st.one_of(st.integers(0, 3), st.text(max_size=3), st.lists(st.booleans(), max_size=2))
)
EDITS = st.tuples(NAMESPACES, KEYS, st.one_of(st.none(), VALUES))


@settings(max_examples=15, deadline=None)
@given(st.lists(EDITS, max_size=12), NAMESPACES, st.integers(1, 3), st.data())
def test_it_holds_what_langgraphs_own_store_holds(tmp_path_factory, edits, prefix, depth, data):
    """The same puts and deletes, one by one and in batches, and the same things are found."""
    own, other = tmp_path_factory.mktemp("store"), InMemoryStore()
    size = data.draw(st.integers(1, 4))
    with MemoryStore(own, open_keeper) as store:
        for at in range(0, len(edits), size):
            ops = [PutOp(*edit) for edit in edits[at : at + size]]
            assert store.batch(ops) == other.batch(ops)
    with MemoryStore(own, open_keeper) as store:  # from the disk alone
        filter = {"a": {"$gte": 1}} if data.draw(st.booleans()) else {"b": 2}
        # The other one lists namespaces that are empty again, too.
        full = {item.namespace for item in other.search((), limit=999)}
        assert store.list_namespaces(prefix=prefix[:1]) == [
            n for n in other.list_namespaces(prefix=prefix[:1]) if n in full
        ]
        assert store.list_namespaces(max_depth=depth) == sorted({n[:depth] for n in full})
        for wanted in (None, filter):
            try:
                expected = other.search(prefix, filter=wanted, limit=99)
            except (TypeError, ValueError):
                continue  # it compares texts with numbers, and fails
            found = store.search(prefix, filter=wanted, limit=99)
            assert seen(found) == seen(expected)
            assert len(store.search(prefix, filter=wanted, limit=1, offset=1)) == (
                min(1, max(0, len(expected) - 1))
            )
        for namespace, key, _ in edits:
            mine, theirs = store.get(namespace, key), other.get(namespace, key)
            assert (mine and mine.value) == (theirs and theirs.value)


def seen(items):
    return sorted((i.namespace, i.key, sorted(i.value.items())) for i in items)


def test_a_query_finds_the_nearest_first(store):
    me = ("me",)
    store.put(me, "house", {"text": "Anna owns the house by the sea"})
    store.put(me, "cat", {"text": "the cat sleeps", "age": 3}, index=["text"])
    store.put(me, "secret", {"text": "the house has a cellar"}, index=False)
    found = store.search(me, query="Who owns the house?")
    assert [item.key for item in found] == ["house", "cat", "secret"]
    assert found[0].score > found[1].score >= 0 and found[2].score is None
    assert [i.key for i in store.search(me, query="cat", filter={"age": {"$gt": 2}})] == ["cat"]
    recalled = store.recall(me, "Who owns the house?")
    assert recalled["answer"] == "They are Anna" and recalled["memory"]["items"] == 2
    assert recalled["passages"][0]["id"] == "house"
    before = store.get(me, "cat")
    store.put(me, "cat", {"text": "Ada is the cat"})
    after = store.get(me, "cat")
    assert after.created_at == before.created_at < after.updated_at
    assert store.recall(me, "Who?")["answer"] == "They are Anna Ada"
    assert store.get(me, "cat").value == {"text": "Ada is the cat"}
    assert store.get(("nobody",), "cat") is None
    assert store.list_namespaces() == [me]  # and none was made by looking


def test_reading_waits_for_a_question_and_is_done_once(tmp_path):
    calls: list[str] = []
    with MemoryStore(tmp_path, lambda shelf: open_keeper(shelf, calls)) as store:
        store.batch([PutOp(("me",), f"k{i}", {"t": f"A{i} " + "x" * 100}) for i in range(9)])
        assert not calls
        store.recall(("me",), "Who?")
        read = len(calls)
        store.recall(("me",), "Who?")
        assert read > 3 and len(calls) == read + 1


def test_threads_and_loops_share_one_store(store):
    def put(i: int) -> None:
        store.put((f"user{i % 5}",), f"k{i}", {"text": f"A{i}"})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(50)))

    async def many():
        found = await asyncio.gather(*(store.asearch((f"user{i}",), limit=99) for i in range(5)))
        answers = await asyncio.gather(*(store.arecall((f"user{i}",), "Who?") for i in range(5)))
        return found, answers

    found, answers = asyncio.run(many())
    for i in range(5):
        keys = {item.key for item in found[i]}
        assert keys == {f"k{n}" for n in range(i, 50, 5)}
        assert {f"A{n}" for n in range(i, 50, 5)} == set(answers[i]["answer"].split()[2:])


def test_it_is_the_memory_that_the_tools_use(tmp_path):
    users = Users(tmp_path, open_keeper)
    remember, _, _ = memory_tools(users, "anna.home")
    id = asyncio.run(remember.function(text="Abel is a cat."))["id"]
    users.close()
    with MemoryStore(tmp_path, open_keeper) as store:
        assert store.get(("anna", "home"), id).value == {"text": "Abel is a cat."}
        assert store.recall(("anna", "home"), "Who?")["answer"] == "They are Abel"
        with pytest.raises(UserError, match="in use by another process"):
            MemoryStore(tmp_path, open_keeper)


def test_mistakes_are_named(store):
    with pytest.raises(UserError, match="cannot be stored as JSON"):
        store.put(("me",), "k", {"x": object()})
    with pytest.raises(UserError, match="an item needs a key"):
        store.put(("me",), "", {"x": 1})
    with pytest.raises(InvalidNamespaceError):
        store.batch([SearchOp(("a.b",))])
    with pytest.raises(NotImplementedError):
        store.put(("me",), "k", {"x": 1}, ttl=5)
    with pytest.raises(ValueError, match="no operator"):
        store.put(("me",), "k", {"x": 1})
        store.search(("me",), filter={"x": {"$like": 1}})
    store.close()
    with pytest.raises(UserError, match="was closed"):
        store.get(("me",), "k")

"""A store for LangGraph on the memories of users: a namespace is a user, an item is read by the
agent, and what the agent remembers can be recalled.

It does what every store of LangGraph does, on disk. Knows nothing of graphs.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

from recollect.errors import UserError
from recollect.evaluation.options import EvalOptions
from recollect.evaluation.reader import Reader
from recollect.keeping.keeper import Keeper
from recollect.keeping.shelf import Shelf
from recollect.keeping.users import Users
from recollect.keeping.windows import Item
from recollect.memory.passages import PassageIndex
from recollect.packaging import install
from recollect.sharing.filters import fits, matches
from recollect.sharing.tools import Shared

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        ListNamespacesOp,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        get_text_at_path,
        validate_op_namespace,
    )
    from langgraph.store.base import Item as Stored
except ImportError as error:
    raise UserError("a store for LangGraph needs langgraph", install("langgraph")) from error

T = TypeVar("T")
Namespace = tuple[str, ...]

BETWEEN = "."
"""Joins a namespace to the name of a user: no label can have it."""
_MADE_UP = re.compile(r"[0-9a-fA-F-]{16,}")
"""Keys that say nothing to a reader."""


class MemoryStore(BaseStore):
    """Items of LangGraph, kept and read by a memory agent.

    `put`, `get`, `search`, `delete` and `list_namespaces` are LangGraph's own, and `recall` asks
    the agent. One process uses a folder at a time.
    """

    def __init__(self, folder: str | Path, open_keeper: Callable[[Shelf], Keeper]) -> None:
        self._users = Users(Path(folder).expanduser(), open_keeper)
        # Graphs call from threads and from event loops: all users live on one loop of their own.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        folder: str | Path,
        model: str,
        agent: str = "",
        settings: Sequence[str] = (),
        **options: Any,
    ) -> Self:
        """Open a store on a run, a model folder or the address of a server.

        The agent and its settings are those of `recollect ask --agent ... --set ...`; options are
        more about the model, such as `window=8192`.
        """
        reader = Reader.open(EvalOptions((), model, **options), agent, settings)
        return cls(folder, reader.keeper)

    def close(self) -> None:
        """Let another process have the folder."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._users.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # What LangGraph asks for

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations: first all that read, then all that write."""
        return self._wait(self._batch(list(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations: first all that read, then all that write."""
        return await self._await(self._batch(list(ops)))

    # What the agent remembers

    def recall(self, namespace: Namespace, question: str, passages: int = 3) -> dict[str, Any]:
        """Answer a question from the memory of a namespace, with passages, receipt and cost."""
        return self._wait(self._shared(namespace, passages).recall(question))

    async def arecall(
        self, namespace: Namespace, question: str, passages: int = 3
    ) -> dict[str, Any]:
        """Answer a question from the memory of a namespace, with passages, receipt and cost."""
        return await self._await(self._shared(namespace, passages).recall(question))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(self._opened(work), self._loop).result()

    async def _await(self, work: Coroutine[Any, Any, T]) -> T:
        running = asyncio.run_coroutine_threadsafe(self._opened(work), self._loop)
        return await asyncio.wrap_future(running)

    def _opened(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        if not self._thread.is_alive():
            work.close()
            raise UserError("this store was closed", "open it again")
        return work

    def _shared(self, namespace: Namespace, passages: int = 0) -> Shared:
        return Shared(self._users, BETWEEN.join(namespace), passages)

    async def _batch(self, ops: Sequence[Op]) -> list[Result]:
        for op in ops:
            validate_op_namespace(op)
        results: list[Result] = []
        puts: dict[Namespace, dict[str, PutOp]] = {}
        for op in ops:
            if isinstance(op, GetOp):
                results.append(await self._get(op))
            elif isinstance(op, SearchOp):
                results.append(await self._search(op))
            elif isinstance(op, ListNamespacesOp):
                results.append(self._list(op))
            elif isinstance(op, PutOp):
                puts.setdefault(op.namespace, {})[op.key] = op  # the last one counts
                results.append(None)
            else:
                raise ValueError(f"there is no operation {type(op).__name__}")
        for namespace, named in puts.items():
            await self._put(namespace, named)
        return results

    async def _items(self, namespace: Namespace) -> list[Item]:
        name = BETWEEN.join(namespace)
        if not name or name not in self._users:
            return []  # and none is made by looking
        return list(self._users[name].items)

    async def _get(self, op: GetOp) -> Stored | None:
        found = next((i for i in await self._items(op.namespace) if i.id == op.key), None)
        return _stored(found, op.namespace) if found else None

    async def _put(self, namespace: Namespace, named: Mapping[str, PutOp]) -> None:
        before = {item.id: item for item in await self._items(namespace)}
        gone = {key for key, op in named.items() if op.value is None}
        fresh = [_item(op, before.get(key)) for key, op in named.items() if key not in gone]
        if fresh or gone & before.keys():
            await self._shared(namespace).on_user(lambda user: user.put(fresh, gone))

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        found: list[tuple[Item, Namespace]] = []
        for namespace in self._namespaces(op.namespace_prefix):
            items = await self._items(namespace)
            found += [(i, namespace) for i in items if fits(_value(i), op.filter)]
        end = op.offset + op.limit
        if not op.query:
            return [_result(i, namespace, None) for i, namespace in found[op.offset : end]]
        scores = await _scores([item.text for item, _ in found], op.query)
        # The best first; of those without a word of the query, the newest.
        order = sorted(range(len(found)), key=lambda i: (-(scores[i] or 0.0), -i))
        order.sort(key=lambda i: scores[i] is None)
        return [_result(*found[i], scores[i]) for i in order[op.offset : end]]

    def _list(self, op: ListNamespacesOp) -> list[Namespace]:
        known = [n for n in self._namespaces() if matches(n, op.match_conditions or ())]
        cut = dict.fromkeys(namespace[: op.max_depth] for namespace in known)
        return list(cut)[op.offset : op.offset + op.limit]

    def _namespaces(self, prefix: Namespace = ()) -> list[Namespace]:
        """Return the namespaces that hold something."""
        known = sorted(tuple(name.split(BETWEEN)) for name in self._users.names())
        under = [namespace for namespace in known if namespace[: len(prefix)] == prefix]
        return [n for n in under if all(n) and self._users[BETWEEN.join(n)].items]


def _item(op: PutOp, before: Item | None) -> Item:
    """Return what is stored and read of a value; what is not to be indexed is not read either."""
    assert op.value is not None
    if not op.key:
        raise UserError("an item needs a key", "put it under a key that is not empty")
    now = datetime.now(UTC).isoformat()
    try:
        value = json.loads(json.dumps(dict(op.value), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(
            f"the value of {op.key!r:.80} cannot be stored as JSON: {error}",
            "put a dict of texts, numbers, lists and dicts",
        ) from error
    text = ""
    if op.index is None:
        text = _readable(op.key, value)
    elif op.index:
        texts = [text for path in op.index for text in get_text_at_path(value, path)]
        text = "\n".join(texts)
    created = before.about.get("created", now) if before else now
    return Item(text, op.key, {"value": value, "created": created, "updated": now})


def _readable(key: str, value: Mapping[str, Any]) -> str:
    """Write a value for a reader: its only text, or all fields with their names."""
    if len(value) == 1 and isinstance(only := next(iter(value.values())), str):
        said = only
    else:
        said = "\n".join(
            f"{name}: {part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)}"
            for name, part in value.items()
        )
    return said if _MADE_UP.fullmatch(key) or not key.strip() else f"{key}: {said}"


def _value(item: Item) -> dict[str, Any]:
    """Return the value of an item; what came another way has only its text."""
    value = item.about.get("value")
    return json.loads(json.dumps(value)) if isinstance(value, dict) else {"text": item.text}


def _times(item: Item) -> dict[str, Any]:
    created = datetime.fromisoformat(item.about["created"])
    updated = item.about.get("updated")
    return {
        "created_at": created,
        "updated_at": datetime.fromisoformat(updated) if updated else created,
    }


def _stored(item: Item, namespace: Namespace) -> Stored:
    return Stored(value=_value(item), key=item.id, namespace=namespace, **_times(item))


def _result(item: Item, namespace: Namespace, score: float | None) -> SearchItem:
    return SearchItem(namespace, item.id, _value(item), score=score, **_times(item))


async def _scores(texts: Sequence[str], query: str) -> list[float | None]:
    """Score texts by their words; what is not to be searched has no score."""
    index = PassageIndex(None)
    places = [i for i, text in enumerate(texts) if text.strip()]
    for i in places:
        index.read(texts[i])
    scores: list[float | None] = [0.0 if text.strip() else None for text in texts]
    for hit in await index.search(query, len(places)) if places else ():
        number = int(hit.entry.id.rpartition("_")[2])  # memory_1 is the first that was read
        scores[places[number - 1]] = hit.score
    return scores

"""Memories of many users: what each of them said is read into a memory of their own.

Items are on disk before they are read, and a memory is a function of the items alone. So a kill
loses nothing, no memory is mixed with another, and a memory after forgetting is the one of a reader
who never saw what was forgotten. Knows nothing of servers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from recollect.concurrency.many import apart
from recollect.errors import UserError
from recollect.files import (
    Lines,
    line_of,
    lock,
    make_folder,
    read_json,
    read_lines,
    remove,
    write_text,
)
from recollect.foreign import redact, storable
from recollect.keeping.keeper import Cost, Keeper, Kept
from recollect.keeping.shelf import Shelf
from recollect.keeping.windows import Item, Packer, digest
from recollect.types import Question

ITEMS, STATES, NAME = "items.jsonl", "states", "user.json"
OPEN = 256
"""Users whose items are held at once; beyond that, idle ones are closed, the oldest first."""
_FIX = "restore it from a copy, or forget this user"


class Closed(Exception):
    """A user was closed while a call waited for its turn: ask `Users` for it again."""


class User:
    """One user's items and memory. Calls for one user wait for one another."""

    def __init__(self, folder: Path, open_keeper: Callable[[Shelf], Keeper]) -> None:
        self.folder = folder
        make_folder(folder, private=True)
        self.keeper = open_keeper(Shelf(folder / STATES))
        self.items = _read(folder / ITEMS)
        self.closed = False
        self._lines = Lines(folder / ITEMS)
        self._lock = asyncio.Lock()
        self._packer = Packer(self.keeper.size, self.keeper.count)
        self._packed = 0
        self._swept = False
        """Whether the states that the items do not lead to are gone."""

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return self._lock.locked()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the calls before this one."""
        async with self._lock:
            if self.closed:
                raise Closed
            yield

    async def remember(self, texts: Iterable[str]) -> list[str]:
        """Store items, then read them; return their ids."""
        ids = await self.add(texts)
        await self.memory()
        return ids

    async def add(self, texts: Iterable[str]) -> list[str]:
        """Store items, which are read before the next answer; return their ids."""
        async with self.turn():
            taken = {item.id for item in self.items}
            fresh: list[Item] = []
            for text in map(clean, texts):
                id = next(id for n in count() if (id := digest(text, str(n))) not in taken)
                taken.add(id)
                fresh.append(Item(text, id))
            await self._store(fresh)
            return [item.id for item in fresh]

    async def put(self, items: Iterable[Item], gone: Collection[str] = ()) -> None:
        """Store items in place of those with the same ids, and remove others; read nothing yet.

        An item with another text comes last, as what was said last.
        """
        async with self.turn():
            named = {item.id: replace(item, text=clean(item.text)) for item in items}
            before = {item.id: item.text for item in self.items}
            moved = {id for id, item in named.items() if before.get(id, item.text) != item.text}
            if not (before.keys() & named.keys() or before.keys() & set(gone)):
                await self._store(list(named.values()))
                return
            kept = [item for item in self.items if item.id not in moved and item.id not in gone]
            rest = [item for id, item in named.items() if id in moved or id not in before]
            self._rewrite([*(named.get(item.id, item) for item in kept), *rest])
            self._sweep()

    async def keep(self, items: Iterable[Item]) -> tuple[Kept, list[Item]]:
        """Store items with ids of their own, those that are not known yet, and read them.

        Return the memory and the items that are new.
        """
        async with self.turn():
            known = {item.id for item in self.items}
            named = {item.id: replace(item, text=clean(item.text)) for item in items}
            fresh = [item for id, item in named.items() if id not in known]
            await self._store(fresh)
            return await self._kept(), fresh

    async def memory(self) -> Kept:
        """Return the memory of all items, reading those that were not read yet."""
        async with self.turn():
            return await self._kept()

    async def recall(self, questions: Sequence[str]) -> tuple[list[str], Cost]:
        """Answer questions from the memory."""
        kept = await self.memory()
        return await self.keeper.answer(kept, [Question(text, ()) for text in questions])

    async def forget(self, *ids: str) -> Kept:
        """Remove items, and every state that has seen one; return the memory without them."""
        async with self.turn():
            if missing := set(ids) - {item.id for item in self.items}:
                raise UserError(f"there is no item {min(missing)}", "list the items to find its id")
            self._rewrite([item for item in self.items if item.id not in ids])
            return await self._kept()

    def close(self) -> None:
        """Close the file of items."""
        if not self.closed:
            self.closed = True
            self._lines.close()

    async def _store(self, items: Sequence[Item]) -> None:
        lines = [_line(item) for item in items]
        for line in lines:
            self._lines.write(line)
        self.items += map(_item, map(json.loads, lines))
        if items:
            await apart(self._lines.sync)

    def _rewrite(self, items: Sequence[Item]) -> None:
        """Put other items in place of all there are."""
        lines = [_line(item) for item in items]
        self._lines.close()
        write_text(self.folder / ITEMS, "".join(f"{line}\n" for line in lines))
        self._lines = Lines(self.folder / ITEMS)
        self.items = [_item(json.loads(line)) for line in lines]
        self._packed, self._swept = 0, False
        self._packer = Packer(self.keeper.size, self.keeper.count)

    def _sweep(self) -> None:
        """Delete the states that the items do not lead to."""
        found = Packer(self.keeper.size, self.keeper.count)
        found.put(self.items)
        self.keeper.shelf.keep_only(set(self.keeper.states(found.windows)))

    async def _kept(self) -> Kept:
        """Read what was not read yet, and delete the states that the items do not lead to."""
        packer = self._packer.fork()  # a call that is cancelled leaves no half-filled one
        packed = len(self.items)
        await packer.add(self.items[self._packed :])
        self._packer, self._packed = packer, packed
        found = packer.windows
        states = set(self.keeper.states(found))
        if not self._swept:  # before anything is read: nothing forgotten survives a kill
            self.keeper.shelf.keep_only(states)
            self._swept = True
        kept = await self.keeper.read_windows(found)
        if kept.read:
            self.keeper.shelf.keep_only(states)
        return kept


def clean(text: str) -> str:
    """Return a text as a file will give it back."""
    return redact(storable(text))


def _line(item: Item) -> str:
    about = {"created": datetime.now(UTC).isoformat(), **item.about}
    return redact(line_of({"id": item.id, "text": item.text, "about": about}))


def _item(row: dict[str, Any]) -> Item:
    return Item(row["text"], row["id"], dict(row.get("about") or {}))


def _read(path: Path) -> list[Item]:
    """Read the items; a last line that a kill cut short was never acknowledged."""
    if path.exists():
        Lines(path).close()
    items = []
    for number, row in read_lines(path, _FIX):
        match row:
            case {"text": str(), "id": str()} if isinstance(row.get("about") or {}, dict):
                items.append(_item(row))
            case _:
                raise UserError(f"{path}, line {number} holds no item", _FIX)
    return items


@dataclass
class Users:
    """All users under one folder, which one process holds at a time."""

    folder: Path
    open_keeper: Callable[[Shelf], Keeper]

    def __post_init__(self) -> None:
        make_folder(self.folder, private=True)
        self._lock = lock(self.folder)
        self._open: dict[str, User] = {}

    def __getitem__(self, name: str) -> User:
        """Return a user; a new one has an empty memory."""
        if not name:
            raise UserError("a memory needs the name of its user", "send the field user")
        if name not in self._open:
            # A name may be anything; its folder is named by a hash, so that none leaves this one.
            self._close_idle()
            folder = self.folder / digest(name)
            self._open[name] = User(folder, self.open_keeper)
            if not (folder / NAME).exists():
                write_text(folder / NAME, json.dumps({"name": name}))
        self._open[name] = user = self._open.pop(name)  # the last to be closed
        return user

    def __contains__(self, name: str) -> bool:
        return (self.folder / digest(name)).exists()

    def names(self) -> Iterator[str]:
        """Yield the name of every user there is."""
        for path in sorted(self.folder.glob(f"*/{NAME}")):
            yield str(read_json(path, _FIX).get("name", ""))

    async def erase(self, name: str) -> bool:
        """Delete everything of a user once no call for it is under way."""
        while name in self:
            user = self[name]
            with suppress(Closed):
                async with user.turn():
                    return self.forget(name)
        return False

    def _close_idle(self) -> None:
        for name in list(self._open)[: max(0, len(self._open) + 1 - OPEN)]:
            if not self._open[name].busy:
                self._open.pop(name).close()

    def forget(self, name: str) -> bool:
        """Delete everything of a user; tell whether there was anything."""
        user = self._open.pop(name, None)
        if user:
            user.close()
        folder = self.folder / digest(name)
        there = folder.exists()
        if there:
            remove(folder)
        return there

    def close(self) -> None:
        """Let another process have the folder."""
        for user in self._open.values():
            with suppress(OSError):
                user.close()
        self._open.clear()
        self._lock.close()

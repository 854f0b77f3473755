"""Memories of many users: what each of them said is read into a memory of their own.

Items are on disk before they are read, and a memory is a function of the items alone. So a kill
loses nothing, no memory is mixed with another, and a memory after forgetting is the one of a reader
who never saw what was forgotten. Knows nothing of servers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from recollect.errors import UserError
from recollect.files import Lines, lock, make_folder, plain, read_lines, remove, write_text
from recollect.foreign import storable
from recollect.keeping.keeper import Cost, Keeper, Kept
from recollect.keeping.shelf import Shelf
from recollect.keeping.windows import Item, digest, pack
from recollect.types import Question

ITEMS, STATES = "items.jsonl", "states"
_FIX = "restore it from a copy, or forget this user"


class User:
    """One user's items and memory. Calls for one user wait for one another."""

    def __init__(self, folder: Path, open_keeper: Callable[[Shelf], Keeper]) -> None:
        self.folder = folder
        make_folder(folder, private=True)
        self.keeper = open_keeper(Shelf(folder / STATES))
        self.items = _read(folder / ITEMS)
        self._lines = Lines(folder / ITEMS)
        self._turn = asyncio.Lock()
        self._drop_states()  # of what was forgotten just before a kill

    async def remember(self, texts: Iterable[str]) -> list[str]:
        """Store items, then read them; return their ids."""
        async with self._turn:
            ids = []
            for text in map(storable, texts):
                same = sum(item.text == text for item in self.items)
                item = Item(text, digest(text, str(same)))
                self._lines.append({"id": item.id, "text": item.text})
                self.items.append(item)
                ids.append(item.id)
            self._lines.sync()
            await self.keeper.read(self.items)
            return ids

    async def memory(self) -> Kept:
        """Return the memory of all items, reading those that were not read yet."""
        async with self._turn:
            return await self.keeper.read(self.items)

    async def recall(self, questions: Sequence[str]) -> tuple[list[str], Cost]:
        """Answer questions from the memory."""
        kept = await self.memory()
        return await self.keeper.answer(kept, [Question(text, ()) for text in questions])

    async def forget(self, id: str) -> Kept:
        """Remove an item, and every state that has seen it; return the memory without it."""
        async with self._turn:
            rest = [item for item in self.items if item.id != id]
            if len(rest) == len(self.items):
                raise UserError(f"there is no item {id}", "list the items to find its id")
            lines = (json.dumps({"id": i.id, "text": i.text}, default=plain) for i in rest)
            self._lines.close()
            write_text(self.folder / ITEMS, "".join(f"{line}\n" for line in lines))
            self._lines = Lines(self.folder / ITEMS)
            self.items = rest
            self._drop_states()
            return await self.keeper.read(self.items)

    def close(self) -> None:
        """Close the file of items."""
        self._lines.close()

    def _drop_states(self) -> None:
        """Delete the states that the items as they are do not lead to."""
        found = list(pack(self.items, self.keeper.size, self.keeper.count))
        self.keeper.shelf.keep_only(set(self.keeper.states(found)))


def _read(path: Path) -> list[Item]:
    """Read the items; a last line that a kill cut short was never acknowledged."""
    if path.exists():
        Lines(path).close()
    try:
        return [Item(row["text"], row["id"]) for _, row in read_lines(path, _FIX)]
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} holds no items ({error})", _FIX) from error


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
            self._open[name] = User(self.folder / digest(name), self.open_keeper)
        return self._open[name]

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

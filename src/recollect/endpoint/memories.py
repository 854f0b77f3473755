"""The memories behind an endpoint: of every user their own, and of nobody in particular.

Without a user, a memory is named by all that was read for it: nobody meets what they did not
send. What a user has forgotten stays out, even if it is sent again. Knows nothing of HTTP.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from recollect.endpoint.conversation import Said
from recollect.errors import UserError
from recollect.files import Lines, read_lines
from recollect.keeping.keeper import Keeper, Kept
from recollect.keeping.shelf import Shelf
from recollect.keeping.users import Closed, User, Users
from recollect.keeping.windows import Item, Packer, digest
from recollect.types import Question

T = TypeVar("T")
USERS, NOBODY, FORGOTTEN = "users", "anonymous", "forgotten.jsonl"
NOBODY_STATES = 4096
"""States of memories without a user; of more, the oldest are deleted."""
HELD = 1 << 25
"""Characters of conversations without a user that stay packed."""


@dataclass(frozen=True)
class Sight:
    """What is in a user's memory."""

    items: tuple[Item, ...]
    kept: Kept
    forgotten: int


class Memories:
    """All memories of one endpoint; their folder is held by one process at a time."""

    def __init__(self, folder: Path, open_keeper: Callable[[Shelf], Keeper]) -> None:
        self.users = Users(folder / USERS, open_keeper)
        self._nobody = open_keeper(Shelf(folder / NOBODY))
        self._packed: OrderedDict[str, tuple[int, Packer]] = OrderedDict()

    def forgotten(self, user: str) -> frozenset[str]:
        """Return what a user has forgotten, by content."""
        if not user or user not in self.users:
            return frozenset()
        path, fix = self._tombstones(user), "restore it from a copy, or forget this user"
        found = set()
        for number, row in read_lines(path, fix):
            content = row.get("content") if isinstance(row, dict) else None
            if not isinstance(content, str):  # what was forgotten must not come back unnoticed
                raise UserError(f"{path}, line {number} is damaged: it forgets nothing", fix)
            found.add(content)
        return frozenset(found)

    def holds(self, user: str) -> bool:
        """Tell whether a user has a memory already."""
        return bool(user) and user in self.users and bool(self.users[user].items)

    async def keep(
        self, user: str, said: Sequence[Said], known: Sequence[Question] = ()
    ) -> Kept | None:
        """Keep messages and read those that were not read; None if there is nothing to keep.

        Without a user, the agent may know a question while it reads.
        """
        items = [one.item for one in said]
        if not user:
            return await self._keep_for_nobody(items, known) if items else None
        if not items and user not in self.users:
            return None
        await self._repair(user)
        kept, _ = await self._with(user, lambda own: own.keep(items))
        if await self._repair(user):  # it was forgotten while this request waited for its turn
            kept = await self._with(user, lambda own: own.memory())
        return kept

    async def see(self, user: str) -> Sight | None:
        """Return what a user's memory holds; None if nothing was ever kept."""
        if user not in self.users:
            return None
        await self._repair(user)
        kept = await self._with(user, lambda own: own.memory())
        gone = len(self.forgotten(user))
        return Sight(tuple(self.users[user].items), kept, gone)

    async def forget(self, user: str, id: str) -> tuple[Kept, list[str]] | None:
        """Forget an item and its copies; return the memory without them, and their ids."""
        found = self._item(user, id)
        if found is None:
            return None
        content = digest(found.text)
        lines = Lines(self._tombstones(user))  # first: a kill must not bring it back
        try:
            lines.append({"id": id, "content": content})
        finally:
            lines.close()
        gone: list[str] = []

        async def drop(own: User) -> Kept:
            gone[:] = [item.id for item in own.items if digest(item.text) == content]
            return await own.forget(*gone) if gone else await own.memory()

        return await self._with(user, drop), gone

    async def erase(self, user: str) -> bool:
        """Forget everything about a user."""
        return await self.users.erase(user)

    def close(self) -> None:
        """Let another process have the folder."""
        self.users.close()

    def _item(self, user: str, id: str) -> Item | None:
        if user not in self.users:
            return None
        return next((item for item in self.users[user].items if item.id == id), None)

    def _tombstones(self, user: str) -> Path:
        return self.users[user].folder / FORGOTTEN

    async def _repair(self, user: str) -> bool:
        """Remove items that are forgotten, as after a kill; tell whether there were any."""
        if not (gone := self.forgotten(user)):
            return False

        async def drop(own: User) -> bool:
            left = [item.id for item in own.items if digest(item.text) in gone]
            if left:
                await own.forget(*left)
            return bool(left)

        return await self._with(user, drop)

    async def _with(self, user: str, work: Callable[[User], Awaitable[T]]) -> T:
        while True:
            try:
                return await work(self.users[user])
            except Closed:  # it was erased, or closed to make room, while this call waited
                continue

    async def _keep_for_nobody(self, items: Sequence[Item], known: Sequence[Question]) -> Kept:
        packer = await self._pack(items)
        kept = await self._nobody.read_windows(packer.windows, known)
        if kept.read:
            self._nobody.shelf.keep_newest(NOBODY_STATES)
        return kept

    async def _pack(self, items: Sequence[Item]) -> Packer:
        """Pack items after the longest beginning that is packed already: ids are chained."""
        known = next((i for i in range(len(items), 0, -1) if items[i - 1].id in self._packed), 0)
        packer = Packer(self._nobody.size, self._nobody.count)
        if known:
            packer = self._packed[items[known - 1].id][1].fork()
        await packer.add(items[known:])
        self._packed[items[-1].id] = (sum(len(item.text) for item in items), packer)
        self._packed.move_to_end(items[-1].id)
        while sum(size for size, _ in self._packed.values()) > HELD:
            self._packed.popitem(last=False)
        return packer

"""Remember, recall and forget: what a user's memory offers to other programs, as tools.

Knows nothing of protocols: a tool is a typed function, and its result is plain data.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from recollect.chat.tools import Tool, ToolFailed, shorten, tool
from recollect.errors import BoundaryError, UserError
from recollect.foreign import one_line
from recollect.keeping.evidence import find_passages
from recollect.keeping.keeper import Cost, Kept, Progress, memory_text
from recollect.keeping.sources import Document
from recollect.keeping.users import Closed, User, Users
from recollect.types import Question

T = TypeVar("T")

SHOWN = 20_000
"""Characters of a memory or a list that a result shows."""
LISTED = 100
"""Items that a result lists, the newest first."""

report: ContextVar[Callable[[Progress], None]] = ContextVar("report")
"""Where the call under way wants to see how far a reading is."""


def memory_tools(users: Users, name: str, passages: int = 3) -> tuple[Tool, ...]:
    """Return the tools of one user's memory."""
    own = Shared(users, name, passages)

    async def remember(text: str) -> dict[str, Any]:
        """Keep a text in the long-term memory, to be recalled in this and later conversations.

        Args:
            text: What to remember: a fact, a message or a whole document.
        """
        return await own.remember(text)

    async def recall(question: str = "") -> dict[str, Any]:
        """Answer a question from the long-term memory, with the passages nearest to it.

        Args:
            question: What to find out. Without one, the memory and its items are shown.
        """
        return await own.recall(question) if question.strip() else await own.shown()

    async def forget(id: str = "", everything: bool = False) -> dict[str, Any]:
        """Remove an item from the long-term memory, as if it had never been there.

        Args:
            id: The id of an item, as remember and recall show it.
            everything: Whether to forget all items.
        """
        return await own.forget(id, everything)

    return tool(remember), tool(recall), tool(forget)


@dataclass(frozen=True)
class Shared:
    """One user's memory, as others see it."""

    users: Users
    name: str
    passages: int = 3

    async def remember(self, text: str) -> dict[str, Any]:
        """Store a text, read it, and say what the memory holds now."""
        if not text.strip():
            raise ToolFailed("Error: remember: text is empty")
        [id] = await self.on_user(lambda user: user.add([text]))
        try:
            kept = await self.on_user(self._memory)
        except (BoundaryError, UserError) as error:
            raise ToolFailed(
                f"Error: remember: the text is stored as item {id} and will be read with the next"
                f" call; it was not read now: {one_line(str(error), 500)}"
            ) from error
        return {"id": id, "memory": self.receipt(kept)}

    async def recall(self, question: str) -> dict[str, Any]:
        """Answer from the memory; show where in the items it may be."""

        async def answered(user: User) -> tuple[Kept, list[str], Cost, list[Document]]:
            kept = await self._memory(user)
            documents = [Document(item.id, item.text) for item in user.items]
            answers, cost = await user.keeper.answer(kept, [Question(question, ())])
            return kept, answers, cost, documents

        kept, [answer], cost, documents = await self.on_user(answered)
        found = await find_passages(documents, question, answer, self.passages)
        return {
            "answer": answer,
            "passages": [{"id": p.document, "text": p.text, "score": p.score} for p in found],
            "memory": self.receipt(kept),
            "cost": {"reading": asdict(kept.cost), "answer": asdict(cost)},
        }

    async def shown(self) -> dict[str, Any]:
        """Show the memory and what it was made of."""

        async def whole(user: User) -> dict[str, Any]:
            kept = await self._memory(user)
            newest = user.items[: -LISTED - 1 : -1]
            items = [{"id": item.id, "text": one_line(item.text, 200)} for item in newest]
            return {"memory": self.receipt(kept), "items": items, "of": len(user.items)}

        return await self.on_user(whole)

    async def forget(self, id: str, everything: bool) -> dict[str, Any]:
        """Remove an item or all of them."""
        if bool(id) == everything:
            raise ToolFailed("Error: forget: name either an id or everything")
        if everything:
            there = len(self.users[self.name].items) if self.name in self.users else 0
            await self.users.erase(self.name)
            return {"forgotten": there}

        async def without(user: User) -> Kept:
            if all(item.id != id for item in user.items):
                raise ToolFailed(f"Error: forget: there is no item {one_line(id, 60)}")
            await user.put((), {id})
            return await self._memory(user)

        kept = await self.on_user(without)
        return {"forgotten": 1, "memory": self.receipt(kept)}

    def receipt(self, kept: Kept) -> dict[str, Any]:
        """Say what a memory holds, and of what."""
        text = shorten(memory_text(kept.memory), SHOWN)
        return {"text": text, "hash": kept.hash, "items": len(kept.items), "tokens": kept.tokens}

    async def on_user(self, call: Callable[[User], Awaitable[T]]) -> T:
        """Call for a user, again if it was closed in the meantime to make room for others."""
        while True:
            try:
                return await call(self.users[self.name])
            except Closed:
                continue

    async def _memory(self, user: User) -> Kept:
        user.keeper.on_progress = report.get(_ignore)
        return await user.memory()


def _ignore(progress: Progress) -> None:
    """Report to nobody."""

"""Fold a conversation: keep what does not fit, and put the memory before what does."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.concurrency.many import apart
from recollect.endpoint.conversation import Conversation, Message, Said, read_conversation, text_of
from recollect.endpoint.memories import Memories
from recollect.endpoint.plan import Plan, make_plan
from recollect.endpoint.prompt import EACH, ends, messages, within_budget
from recollect.foreign import readable_json
from recollect.keeping.keeper import Cost, Kept, memory_text
from recollect.keeping.windows import Count
from recollect.serve.refusal import Refusal
from recollect.types import Question

AROUND = 64
"""Tokens that a chat template may add to a chat."""
TOOLS = 192
"""Tokens that a chat template may add around tools."""
WRAPPED = 48
"""Tokens around a memory."""
PART = 1024
"""Tokens of an image or another part that is not text."""
MANY = 512
"""Messages that are read apart from what serves others."""
PIECE = 1 << 14
"""Characters that are counted before others have their turn."""
COUNTED = 1 << 16
"""Messages whose tokens are remembered."""
QUESTION = 128
"""Tokens of the question that an agent knows while it reads, in a window that has room for it."""
LEAST = 64
"""Tokens that must be left for the conversation itself."""


@dataclass(frozen=True)
class Folded:
    """A conversation that fits the window."""

    messages: list[Message]
    question: str
    """What the user said last."""
    receipt: dict[str, Any]
    reply: int
    """Tokens that the reply may have."""
    kept: Kept | None = None


@dataclass
class Folding:
    """What folds: memories, and the window that everything has to fit."""

    memories: Memories
    count: Count
    window: int
    memory_tokens: int
    usual_reply: int
    """Tokens of a reply where the request sets no limit."""
    know_question: bool = False
    """Whether the agent reads for the question of a request that names no user."""
    _tokens: OrderedDict[str, int] = field(default_factory=OrderedDict)

    async def fold(self, body: dict[str, Any], user: str) -> Folded:
        """Keep what does not fit, in the memory of the user, and return what is sent."""
        conversation = await _read(body.get("messages"))
        reply = min(_limit(body) or self.usual_reply, self.window // 2)
        room = self.window - reply - AROUND - await self._tools(body)
        forgotten = self.memories.forgotten(user)
        head, said = conversation.head, conversation.said
        sizes = [await self._size(one) for one in head]
        tokens = [await self._size(one) for one in said]
        limits: dict[str, int] = {}
        plan = Plan(tuple(range(len(said))), {}, 0)
        if self.memories.holds(user) or sum(sizes) + sum(tokens) > room:
            limits, room = self._room(head, sizes, room)
            plan = make_plan(said, tokens, room, self.window)
        long_head = [one for one in head if one.id in limits]
        old = [*long_head, *said[: plan.kept]]
        question = _question(conversation)
        known = self._known(question) if not user else ()
        old = [one for one in old if one.content not in forgotten]
        kept = await self.memories.keep(user, old, known)
        limits |= {said[i].id: limit for i, limit in plan.limits.items()}
        newest = said[-1]
        shown = [_unless(said[i], forgotten, newest) for i in plan.shown]
        memory = memory_text(kept.memory).strip() if kept else ""
        memory = await within_budget(memory, self.memory_tokens, question[-4096:], self.count)
        sent = messages(
            [_unless(one, forgotten, newest) for one in head], shown, limits, memory, self.count
        )
        withheld = [one.id for one in said if one.content in forgotten]
        receipt = receipt_of(user, kept, self.count(memory), len(shown), list(limits), withheld)
        return Folded(sent, question[-4096:], {"recollect": receipt}, reply, kept)

    def _known(self, question: str) -> tuple[Question, ...]:
        """Return what the agent knows of the question: one in a long message is at either end."""
        if not self.know_question:
            return ()
        limit = min(QUESTION, self.window // 16)
        if len(question) > 8 * limit or self.count(question) > limit:
            question = ends(question, limit, " ... ", self.count)
        return (Question(question, ()),)

    def _room(
        self, head: Sequence[Said], sizes: Sequence[int], room: int
    ) -> tuple[dict[str, int], int]:
        """Return how much of the system messages is shown, and what the others have left."""
        room -= self.memory_tokens + WRAPPED
        limits = _head_limits(head, sizes, max(0, room))
        taken = (min(size, limits.get(one.id, size)) for one, size in zip(head, sizes, strict=True))
        room -= sum(taken)
        if room < LEAST:
            raise _no_room(self.window)
        return limits, room

    async def _tools(self, body: dict[str, Any]) -> int:
        given = [body[name] for name in ("tools", "functions") if body.get(name)]
        return TOOLS + await self.tokens(readable_json(given)) if given else 0

    async def _size(self, said: Said) -> int:
        """Count a message; what was counted once is not counted again."""
        key = f"{said.id} {said.role}"
        if key not in self._tokens:
            content = said.message.get("content")
            others = (
                [p for p in content if p.get("type") != "text"] if isinstance(content, list) else []
            )
            self._tokens[key] = EACH + await self.tokens(said.text) + PART * len(others)
            if len(self._tokens) > COUNTED:
                self._tokens.popitem(last=False)
        return self._tokens[key]

    async def tokens(self, text: str) -> int:
        """Count a text, piece by piece; others may run in between."""
        total = 0
        for at in range(0, len(text), PIECE):
            total += self.count(text[at : at + PIECE])
            await asyncio.sleep(0)
        return total


async def _read(sent: Any) -> Conversation:
    """Read a conversation; others are served while thousands of messages are hashed."""
    if isinstance(sent, list) and len(sent) > MANY:
        return await apart(lambda: read_conversation(sent))
    return read_conversation(sent)


def _head_limits(head: Sequence[Said], sizes: Sequence[int], room: int) -> dict[str, int]:
    """Show system messages that take more than half of the room in part."""
    if sum(sizes) <= room // 2:
        return {}
    share = max(1, room // 2 // len(head))
    return {one.id: share for one, size in zip(head, sizes, strict=True) if size > share}


def _unless(said: Said, forgotten: frozenset[str], newest: Said) -> Said:
    return said.withheld if said.content in forgotten and said is not newest else said


def _limit(body: dict[str, Any]) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        value = body.get(name)
        if type(value) is int and value > 0:
            return value
    return 0


def _question(conversation: Conversation) -> str:
    last = next((one for one in reversed(conversation.said) if one.role == "user"), None)
    return text_of((last or conversation.said[-1]).message)


def _no_room(window: int) -> Refusal:
    return Refusal(
        f"the tools and the reply leave no room in the model's window of {window} tokens;"
        " send fewer tools or ask for a shorter reply",
        param="messages",
        code="context_length_exceeded",
    )


def receipt_of(
    user: str, kept: Kept | None, tokens: int, shown: int, partly: list[str], withheld: list[str]
) -> dict[str, Any]:
    """Say what was kept, what of it was read now, and at what cost."""
    cost = kept.cost if kept else Cost()
    return {
        "user": user or None,
        "memory": {"hash": kept.hash, "tokens": tokens, "items": len(kept.items)} if kept else None,
        "read": list(kept.fresh) if kept else [],
        "tokens_read": kept.fresh_tokens if kept else 0,
        "reading": {
            "calls": cost.calls,
            "prompt_tokens": cost.prompt_tokens,
            "completion_tokens": cost.reply_tokens,
        },
        "shown": shown,
        "shortened": partly,
        "withheld": withheld,
    }

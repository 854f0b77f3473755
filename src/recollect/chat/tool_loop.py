"""A chat with tools: the model speaks, its calls are answered, until it makes none or is stopped.

Knows nothing of what the tools do, or of who learns from the chat.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from recollect.chat.chat import Chat, ContextFull
from recollect.chat.rendering import Message
from recollect.chat.rendering import tool as tool_message
from recollect.chat.tool_calls import Parse, Parsed, parse_reply
from recollect.chat.tools import OUTCOMES, Answer, Limits, ToolBox, shorten

Ending = Literal["no call", "done", "turns", "room"]
"""Why a chat ended: without a call, with DONE, or at a limit of turns or of tokens."""

DONE = "DONE"
SHORTEST = 64
"""Characters of a tool response below which it is not worth showing."""


@dataclass
class Transcript:
    """How a chat with tools went."""

    turns: int = 0
    ended: Ending = "no call"
    text: str = ""
    """What the model said last, beside its calls."""
    answers: list[Answer] = field(default_factory=list)
    """To every call, in order; the last turn's may not have been shown."""

    def counts(self, toolbox: ToolBox) -> dict[str, int]:
        """Count the calls: all, by outcome, and by tool."""
        outcomes = Counter(answer.outcome for answer in self.answers)
        tools = Counter(answer.tool for answer in self.answers)
        return {
            "calls": len(self.answers),
            **{outcome: outcomes[outcome] for outcome in OUTCOMES},
            **{f"calls/{tool.name}": tools[tool.name] for tool in toolbox.tools},
        }


async def converse(
    chat: Chat,
    opening: Sequence[Message],
    toolbox: ToolBox,
    parse: Parse = parse_reply,
    last_word: str = "",
) -> Transcript:
    """Let the model use the tools until it makes no call, says DONE, or meets a limit.

    The calls of the last turn are carried out too, but their answers are not shown: a context
    never ends on an observation. The chat must have been opened with the toolbox's schemas.
    `last_word` is put behind the answers before the last turn, or when room runs out.
    """
    limits = toolbox.limits
    record = Transcript()
    messages: Sequence[Message] | None = opening
    while messages is not None:
        reply = await chat.say(*messages, max_tokens=_reply_limit(chat, messages, limits))
        record.turns += 1
        parsed = parse(chat, reply)
        answers = await toolbox.answer(parsed.calls)
        record.text = parsed.text
        record.answers += answers
        messages = None
        if ending := _ending(parsed, record.turns, limits):
            record.ended = ending
        else:
            last = record.turns + 1 >= limits.max_assistant_turns
            messages = _fitted(chat, answers, limits, last_word, last)
            if messages is None:
                record.ended = "room"
    chat.context.counts = record.counts(toolbox)
    return record


def _ending(parsed: Parsed, turns: int, limits: Limits) -> Ending | None:
    if _says_done(parsed.text):
        return "done"
    if not parsed.calls:
        return "no call"
    return "turns" if turns >= limits.max_assistant_turns else None


def _says_done(text: str) -> bool:
    """Tell whether the last word is DONE, however it is dressed up."""
    words = text.split()
    return bool(words) and words[-1].strip(".!*\"'`_:()[]") == DONE


def _room(chat: Chat, limits: Limits) -> int:
    """Return the tokens the chat may still grow by."""
    if limits.max_context_tokens is None:
        return chat.room
    return min(chat.room, limits.max_context_tokens - len(chat.context.ids))


def _reply_limit(chat: Chat, messages: Sequence[Message], limits: Limits) -> int:
    room = _room(chat, limits) - len(chat.render(*messages))
    if room < 1:
        name = chat.context.label or chat.context.role
        raise ContextFull(f"{name}: {1 - room} prompt tokens too many for max_context_tokens")
    return min(limits.max_turn_tokens, room)


def _fitted(
    chat: Chat, answers: Sequence[Answer], limits: Limits, last_word: str, last: bool
) -> list[Message] | None:
    """Make messages of the answers, cut to leave room for a reply; None if too little is left."""

    def messages(length: int, last: bool = True) -> list[Message]:
        texts = [shorten(answer.text, length, limits.truncation) for answer in answers]
        if last and last_word:
            texts[-1] += f"\n\n{last_word}"
        return [tool_message(text) for text in texts]

    room = _room(chat, limits) - limits.min_reply_tokens

    def overflows(length: int, last: bool = True) -> bool:
        return len(chat.render(*messages(length, last))) > room

    longest = max((len(answer.text) for answer in answers), default=0)
    if not overflows(longest, last):
        return messages(longest, last)
    lengths = range(SHORTEST, longest)
    # A longer text may have fewer tokens now and then, so what the search finds is checked.
    length = SHORTEST + bisect_left(lengths, True, key=overflows) - 1
    return None if length < SHORTEST or overflows(length) else messages(length)

"""A conversation as a client sends it: messages, what is read of each, and what names it.

A message is named by its text and everything said before it, the system messages aside: those may
change with every request. Knows nothing of tokens, memories or servers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.foreign import storable
from recollect.keeping.users import clean
from recollect.keeping.windows import Item, digest
from recollect.serve.refusal import Refusal

SYSTEM = ("system", "developer")
ROLES = (*SYSTEM, "user", "assistant", "tool", "function")
MOST = 1 << 16
"""Messages of a conversation."""
REMOVED = "[removed at the user's request]"

Message = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """One message."""

    message: Message
    text: str
    """What is read of it: who speaks, and what is said."""
    id: str

    @property
    def role(self) -> str:
        return str(self.message["role"])

    @property
    def item(self) -> Item:
        """What is kept of it."""
        return Item(self.text, self.id)

    @property
    def content(self) -> str:
        """Names what it says, whatever was said before."""
        return digest(self.text)

    @property
    def withheld(self) -> Said:
        """The same message without what it says."""
        message = {**self.message, "content": REMOVED}
        if calls := self.message.get("tool_calls"):
            message["tool_calls"] = [_silent(call) for call in calls]
        return Said(message, "", self.id)


def _silent(call: Any) -> Any:
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    return {**call, "function": {**call["function"], "arguments": "{}"}}


@dataclass(frozen=True)
class Conversation:
    """What a request says."""

    head: tuple[Said, ...]
    """The system messages at its beginning."""
    said: tuple[Said, ...]
    """All other messages."""


def read_conversation(messages: Any) -> Conversation:
    """Check messages and name them."""
    if not isinstance(messages, list) or not messages:
        raise Refusal("messages must be a list with at least one message", param="messages")
    if len(messages) > MOST:
        raise Refusal(f"a conversation has at most {MOST} messages", 413, param="messages")
    for number, message in enumerate(messages):
        _check(message, f"messages.{number}")
    start = next((i for i, m in enumerate(messages) if m["role"] not in SYSTEM), len(messages))
    if start == len(messages):
        raise Refusal("there is nothing but system messages", param="messages")
    head = [_said(message, "system") for message in messages[:start]]
    said: list[Said] = []
    for message in messages[start:]:
        said.append(_said(message, said[-1].id if said else ""))
    return Conversation(tuple(head), tuple(said))


def _check(message: Any, where: str) -> None:
    if not isinstance(message, dict):
        raise Refusal(f"{where} is not an object", param=where)
    if message.get("role") not in ROLES:
        raise Refusal(f"{where}.role: choose from {', '.join(ROLES)}", param=f"{where}.role")
    content = message.get("content")
    parts = isinstance(content, list) and all(isinstance(part, dict) for part in content)
    if not (content is None or isinstance(content, str) or parts):
        raise Refusal(f"{where}.content: it must be a text or a list of parts", param=where)
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise Refusal(f"{where}.tool_calls: it must be a list", param=where)


def _said(message: Message, before: str) -> Said:
    text = clean(f"{_speaker(message)}: {text_of(message)}")
    other = [part for part in _parts(message) if part.get("type") != "text"]
    shown = storable(json.dumps(other, sort_keys=True)) if other else ""
    return Said(message, text, digest(before, text, shown))


def _speaker(message: Message) -> str:
    name = message.get("name")
    return f"{message['role']} {name}" if isinstance(name, str) and name else str(message["role"])


def text_of(message: Mapping[str, Any]) -> str:
    """Return what a message says, its tool calls and other parts named."""
    content = message.get("content")
    said = [content] if isinstance(content, str) else [_part(part) for part in _parts(message)]
    for call in message.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            said.append(f"[calls {function.get('name')} {function.get('arguments')}]")
    return "\n".join(text for text in said if text)


def _parts(message: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else ()


def _part(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    return text if isinstance(text, str) else f"[{str(part.get('type', 'part'))[:40]}]"


def shortened(message: Message, text: str) -> Message:
    """Return a message that says this text in place of its own."""
    others = [part for part in _parts(message) if part.get("type") != "text"]
    return {**message, "content": [{"type": "text", "text": text}, *others] if others else text}

"""A client's messages as tokens, through the model's own chat template.

Contents are encoded apart and spliced in as tokens, as in `rendering`, so nothing a message holds
becomes a control token. Strings inside tools and calls are left to the template, which may look at
them, unless they spell a control token: those are spliced in as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jinja2 import TemplateError

from recollect.chat.rendering import Tokenizer
from recollect.serve.refusal import Refusal
from recollect.serve.requests import ChatMessage, ToolCall

_CONTENT = "\u2983{}\u2984"
_STRING = _CONTENT + '"'  # the quote shows whether the template writes the string as JSON
_MARKS = re.compile('\u2983(\\d+)\u2984(\\\\?")?')


@dataclass
class _Splices:
    """Strings taken out of what the template sees, by number."""

    tokenizer: Tokenizer
    texts: list[str] = field(default_factory=list)
    contents: list[int] = field(default_factory=list)
    """The numbers of those that must appear, each once and in this order."""

    def content(self, text: str) -> str:
        self.contents.append(len(self.texts))
        self.texts.append(text)
        return _CONTENT.format(len(self.texts) - 1)

    def guarded(self, value: Any) -> Any:
        """Put marks for the strings and keys in a JSON value that the template must not see."""
        if isinstance(value, str):
            return self._mark(value) if self._spells_control(value) else value
        if isinstance(value, list):
            return [self.guarded(item) for item in value]
        if isinstance(value, dict):
            return {self.guarded(key): self.guarded(item) for key, item in value.items()}
        return value

    def _mark(self, text: str) -> str:
        self.texts.append(text)
        return _STRING.format(len(self.texts) - 1)

    def _spells_control(self, text: str) -> bool:
        encode = self.tokenizer.encode
        return "\u2983" in text or encode(text, control=True) != encode(text)


def _shown(message: ChatMessage, splices: _Splices) -> dict[str, Any]:
    """Return a message as the template sees it."""
    role = "system" if message.role == "developer" else message.role
    if message.role == "assistant" and message.tool_calls:
        content = splices.content(message.text) if message.text else ""
        calls = [_shown_call(call, splices) for call in message.tool_calls]
        return {"role": role, "content": content, "tool_calls": calls}
    shown = {"role": role, "content": splices.content(message.text)}
    if message.role == "tool":
        extra = {"tool_call_id": message.tool_call_id, "name": message.name}
        shown |= {key: value for key, value in extra.items() if value is not None}
    return shown


def _shown_call(call: ToolCall, splices: _Splices) -> dict[str, Any]:
    try:
        arguments = json.loads(call.function.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise Refusal(
            f"the arguments of the call of {call.function.name} must be a JSON object, as text",
            param="messages",
        )
    function = {"name": call.function.name, "arguments": splices.guarded(arguments)}
    return {"id": call.id, "type": "function", "function": function}


def render(
    tokenizer: Tokenizer, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]] = ()
) -> list[int]:
    """Return the prompt for the assistant's next turn."""
    splices = _Splices(tokenizer)
    shown = [_shown(message, splices) for message in messages]
    try:
        text = tokenizer.template(shown, splices.guarded(list(tools)), True)
    except TemplateError as error:
        raise Refusal(f"the model's chat template refuses these messages: {error}") from None
    except (TypeError, ValueError, KeyError) as error:
        raise Refusal(f"the model's chat template fails: {error}", param="messages") from None
    ids: list[int] = []
    seen: list[int] = []
    at = 0
    for found in _MARKS.finditer(text):
        number, quote = int(found[1]), found[2] or ""
        piece = splices.texts[number]
        ids += tokenizer.encode(text[at : found.start()], control=True)
        at = found.end()
        if number in splices.contents:
            seen.append(number)
            at -= len(quote)  # a content's mark has no quote: this one is the template's
        elif quote == '\\"':
            piece = json.dumps(piece, ensure_ascii=False)[1:-1]
        ids += tokenizer.encode(piece)
    if seen != splices.contents:
        roles = ", ".join(message.role for message in messages)
        raise Refusal(
            f"the model's chat template does not show these messages each once and in order"
            f" (roles: {roles})",
            param="messages",
        )
    return ids + tokenizer.encode(text[at:], control=True)

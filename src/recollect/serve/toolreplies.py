"""Tool calls in a reply, as OpenAI's clients expect them beside its text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from recollect.chat.chat import Chat, Model, Reply
from recollect.chat.policy import Policy
from recollect.chat.rendering import Renderer
from recollect.chat.said import Said
from recollect.chat.tool_calls import CLOSE, OPEN, parse_reply
from recollect.chat.tools import Call
from recollect.models.tokenizer import HFTokenizer
from recollect.serve.text import Growing
from recollect.types import Completion, Context, Turn

THINK, THOUGHT = "<think>", "</think>"


@dataclass(frozen=True)
class ToolReader:
    """Reads the calls in replies to one prompt that came with tools."""

    tokenizer: HFTokenizer
    policy: Policy
    prompt_ids: Sequence[int]
    schemas: Sequence[dict[str, Any]]
    single: bool = False
    """Only the first call of a reply is taken."""

    @cached_property
    def thinking(self) -> bool:
        """Whether the prompt has opened the model's thinking."""
        return self.tokenizer.decode(self.prompt_ids[-8:]).rstrip().endswith(THINK)

    @cached_property
    def tagged(self) -> bool:
        """Whether calls can be seen to begin in the text."""
        shown = self.tokenizer.decode(self.tokenizer.encode(OPEN, control=True))
        return OPEN in shown and not getattr(self.tokenizer.hf, "response_template", None)

    def growing(self, stops: tuple[str, ...]) -> Growing | None:
        """Return what streams the text before a call; None if only the end can tell."""
        if not self.tagged:
            return None
        return Growing(self.tokenizer.decode, stops, OPEN, self._said_from)

    def read(self, text: str, completion: Completion) -> tuple[str, list[Call]]:
        """Return the text beside the calls, and the calls.

        A reply with a call that cannot be read is text, all of it: who asked decides what to say
        to it.
        """
        ids = completion.token_ids
        turn = Turn(len(self.prompt_ids), ids, completion.logprobs, completion.stop_reason)
        said = Said(Context("assistant", ids=[*self.prompt_ids, *ids], turns=[turn]))
        chat = Chat(Model(self.policy, Renderer(self.tokenizer)), said, (), tuple(self.schemas))
        parsed = parse_reply(chat, Reply(text, ids, completion.stop_reason))
        calls = [call for call in parsed.calls if isinstance(call, Call)]
        if not calls or len(calls) < len(parsed.calls):
            return text, []
        beside = self._beside(text) if self.tagged else parsed.text
        return beside, [self._typed(call) for call in calls[: 1 if self.single else None]]

    def _said_from(self, text: str) -> int:
        """Return where thinking ends: a call inside it is ignored."""
        if not self.thinking and not text.lstrip().startswith(THINK):
            return 0
        at = text.find(THOUGHT)
        return len(text) if at < 0 else at + len(THOUGHT)

    def _beside(self, text: str) -> str:
        before = text[: text.find(OPEN, self._said_from(text))].rstrip()
        after = text.rpartition(CLOSE)[2].strip()
        if OPEN in after or not after:
            return before
        return f"{before}\n{after}" if before else after

    def _typed(self, call: Call) -> Call:
        """Read arguments that were written as bare text by what the tool says they are."""
        if not call.untyped:
            return call
        schema: dict[str, Any] = next(
            (s["function"] for s in self.schemas if s["function"]["name"] == call.name), {}
        )
        kinds = (schema.get("parameters") or {}).get("properties") or {}
        return Call(
            call.name, {name: _value(v, kinds.get(name)) for name, v in call.arguments.items()}
        )


def _value(text: Any, kind: Any) -> Any:
    if not isinstance(kind, dict) or kind.get("type", "string") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def call_shape(call: Call, id: str) -> dict[str, Any]:
    """Return a call as it is written in a message."""
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {"id": id, "type": "function", "function": {"name": call.name, "arguments": arguments}}

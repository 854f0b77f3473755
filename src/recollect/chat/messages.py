"""A chat as the messages that an OpenAI-compatible server takes, tool calls and all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.chat.policy import Spoken, SpokenCall
from recollect.chat.rendering import Message, Renderer


@dataclass
class Dialogue:
    """What has been said in a chat: messages, and the replies between them."""

    said: list[dict[str, Any]] = field(default_factory=list)
    """Complete messages, up to the last reply."""
    last: Spoken | None = None
    """The last reply: how it is sent depends on which of its calls are answered."""

    def followed_by(self, messages: Sequence[Message], renderer: Renderer) -> list[dict[str, Any]]:
        """Return all messages to send when `messages` are said next.

        A server pairs every tool message with a call by its id. Calls that are not answered, and
        answers to what the server did not take for a call, are sent as text instead.
        """
        answers = 0
        while answers < len(messages) and messages[answers].role == "tool":
            answers += 1
        calls = self.last.calls[:answers] if self.last else ()
        sent = [*self.said, *([_assistant(self.last, calls)] if self.last else [])]
        for call, message in zip(calls, messages, strict=False):
            answer = {"role": "tool", "tool_call_id": call.id, "content": renderer.text(message)}
            sent.append(answer)
        for message in messages[len(calls) :]:
            text = renderer.text(message)
            role = message.role
            if role == "tool":
                role, text = "user", f"<tool_response>\n{text}\n</tool_response>"
            # Many templates want user and assistant to take turns.
            if sent and sent[-1]["role"] == role == "user":
                sent[-1] = {"role": "user", "content": f"{sent[-1]['content']}\n{text}"}
            else:
                sent.append({"role": role, "content": text})
        return sent

    def add(self, sent: list[dict[str, Any]], reply: Spoken) -> None:
        """Record what was sent and the reply to it."""
        self.said, self.last = sent, reply


def _assistant(reply: Spoken, answered: tuple[SpokenCall, ...]) -> dict[str, Any]:
    if not answered:
        return {"role": "assistant", "content": reply.text}
    rest = Spoken(reply.content, reply.stop_reason, reply.calls[len(answered) :])
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in answered
    ]
    return {"role": "assistant", "content": rest.text, "tool_calls": calls}

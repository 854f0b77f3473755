"""Who can speak in a chat: a Policy continues tokens, a Speaker answers messages.

What learns is a Policy: its tokens are exact. A Speaker is a server without token ids; what is
recorded of it is good for reading and counting, never for training.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from recollect.types import Completion, Sampling, StopReason


class Policy(Protocol):
    """Continue a prompt. Many calls may be in flight at once."""

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion: ...


@dataclass(frozen=True)
class SpokenCall:
    """A tool call as a server took it out of a reply; the arguments are JSON, or should be."""

    id: str
    name: str
    arguments: str

    @property
    def text(self) -> str:
        """The call in the form that `toolcalls` reads; broken arguments stay broken."""
        arguments = self.arguments.strip() or "{}"
        written = f'{{"name": {json.dumps(self.name)}, "arguments": {arguments}}}'
        return f"<tool_call>\n{written}\n</tool_call>"


@dataclass(frozen=True)
class Spoken:
    """What a Speaker replied."""

    content: str
    stop_reason: StopReason
    calls: tuple[SpokenCall, ...] = ()
    prompt_tokens: int = 0
    """The server's own count; 0 if it reports no count."""
    sampled_tokens: int = 0

    @property
    def text(self) -> str:
        """What was said and the calls, as a model that writes its calls itself would have."""
        calls = [call.text for call in self.calls]
        return "\n".join(([self.content] if self.content else []) + calls)


class Speaker(ABC):
    """Answer messages through the server's own chat template. Many calls may be in flight."""

    @abstractmethod
    async def reply(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], sampling: Sampling
    ) -> Spoken:
        """Return what the model says to the messages, the tools being at its hand."""

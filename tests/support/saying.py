"""A policy with the engine's interface that says given texts: for what a tiny model never says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from recollect.models.tokenizer import HFTokenizer
from recollect.serve.server import Serving
from recollect.types import Completion, Sampling


@dataclass
class Saying:
    """Say a text, token by token, and end the turn; keep the prompts."""

    tokenizer: HFTokenizer
    text: str
    prompts: list[list[int]] = field(default_factory=list)

    async def sample(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        heard: Callable[[int, float], None] | None = None,
    ) -> Completion:
        self.prompts.append(list(prompt_ids))
        ids = (*self.tokenizer.encode(self.text), self.tokenizer.end_ids[0])[: sampling.max_tokens]
        for token in ids:
            await asyncio.sleep(0)
            if heard:
                heard(token, -0.5)
        reason = "stop" if ids[-1] in self.tokenizer.end_ids else "length"
        return Completion(ids, (-0.5,) * len(ids), reason)


def say(server: Serving, text: str) -> Saying:
    """Let the server's model say this from now on."""
    policy = Saying(server.service.engine.model.tokenizer, text)
    server.service.engine.policy = policy  # type: ignore[assignment]
    return policy

"""A policy whose replies come from a function of the prompt's text: for tests, demos and play."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer, Tokenizer
from recollect.policies.bytes import Utf8Tokenizer
from recollect.types import Completion, Sampling, StopReason

Script = Callable[[str], str | Awaitable[str]]


@dataclass(frozen=True)
class ScriptedPolicy:
    """Answer every prompt with `script(prompt text)`, in tokens, ending with the end token."""

    tokenizer: Tokenizer
    script: Script
    logprob: float = -1.0
    """Given to every token, so that a script can stand in for a sampled model."""

    @classmethod
    def model(cls, script: Script, window: int = 1 << 30) -> Model:
        """Make a model that a script speaks for, with bytes as its tokens."""
        tokenizer = Utf8Tokenizer()
        return Model(cls(tokenizer, script), Renderer(tokenizer), window=window)

    async def sample(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Return the scripted reply, cut at a stop text or at `max_tokens`."""
        reply = self.script(self.tokenizer.decode(prompt_ids))
        text = await reply if inspect.isawaitable(reply) else reply
        stopped = min((text.find(s) + len(s) for s in sampling.stop if s in text), default=None)
        end = self.tokenizer.end_ids[:1] if stopped is None else ()
        ids = [*self.tokenizer.encode(text[:stopped]), *end]
        cut = ids[: sampling.max_tokens]
        reason: StopReason = "stop" if len(cut) == len(ids) else "length"
        return Completion(tuple(cut), (self.logprob,) * len(cut), reason)


def replies(texts: Iterable[str]) -> Script:
    """Make a script that gives the texts one after another, whatever is asked."""
    left: Iterator[str] = iter(texts)

    def script(_prompt: str) -> str:
        try:
            return next(left)
        except StopIteration:
            raise ValueError("the scripted policy has no reply left") from None

    return script

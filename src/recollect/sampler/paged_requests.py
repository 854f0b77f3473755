"""What is asked of a sampler with pages, and how far each request is. Knows nothing of models."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from recollect.chat.rendering import Tokenizer, token_array
from recollect.errors import UserError
from recollect.sampler.requests import Heard, stop_reason
from recollect.types import Completion, Sampling, StopReason

NONE = np.empty(0, dtype=np.int64)


def checked(
    prompt_ids: Sequence[int], sampling: Sampling, vocabulary: int, room: int, window: int
) -> np.ndarray:
    """Return a prompt as an array, if it can be continued."""
    ids = token_array(prompt_ids)
    if not len(ids) or ids.view(np.uint64).max() >= vocabulary:  # a negative one is huge then
        raise ValueError("a prompt needs at least one token, all of them in the vocabulary")
    if len(ids) + sampling.max_tokens > room:
        raise UserError(
            f"a prompt of {len(ids)} tokens with {sampling.max_tokens} more does not fit the"
            f" sampler's cache of {room}",
            "give it more memory: --model.cache-gib for training, --cache-gib elsewhere",
        )
    if len(ids) + sampling.max_tokens > window:
        raise ValueError(f"prompt and reply may have {window} tokens, the window")
    return ids


@dataclass(eq=False)
class PagedRequest:
    """One prompt being continued."""

    number: int
    prompt: np.ndarray
    sampling: Sampling
    done: asyncio.Future[Completion]
    heard: Heard | None = None
    tokens: list[int] = field(default_factory=list)
    """Those that were drawn before it got its slot; all of them if each is looked at."""
    logprobs: list[float] = field(default_factory=list)
    slot: int = -1
    """Where its state is while it runs."""
    ids: np.ndarray = field(default_factory=lambda: NONE)
    """What is read before a token is drawn: the prompt, and what was drawn before an eviction."""
    places: np.ndarray = field(default_factory=lambda: NONE)
    """Its pages."""
    named: int = 0
    """How many of them others can find."""
    cached: int = 0
    """Tokens whose keys are in the pages once what was begun is done."""

    @property
    def whole(self) -> np.ndarray:
        """The prompt and all that was drawn."""
        if not self.tokens:
            return self.prompt
        return np.concatenate([self.prompt, token_array(self.tokens)])

    def extend(
        self, tokens: list[int], logprobs: list[float], tokenizer: Tokenizer
    ) -> StopReason | None:
        """Append tokens one by one up to where the sequence ends, and say why it does."""
        for token, logprob in zip(tokens, logprobs, strict=True):
            self.tokens.append(token)
            self.logprobs.append(logprob)
            if self.heard:
                self.heard(token, logprob)
            if reason := stop_reason(self.tokens, self.sampling, tokenizer):
                return reason
        return None

    def answer(self, reason: StopReason) -> None:
        """Hand over what was drawn, unless no one waits for it."""
        if not self.done.done():
            self.done.set_result(Completion(tuple(self.tokens), tuple(self.logprobs), reason))


@dataclass(frozen=True)
class Read:
    """Requests whose prompts were just read, with the first token of each, on the device."""

    requests: list[PagedRequest]
    tokens: torch.Tensor
    logprobs: torch.Tensor

    @classmethod
    def joined(cls, reads: Sequence[Read]) -> Read | None:
        """Join what several passes have read."""
        if len(reads) < 2:
            return reads[0] if reads else None
        return cls(
            [request for read in reads for request in read.requests],
            torch.cat([read.tokens for read in reads]),
            torch.cat([read.logprobs for read in reads]),
        )

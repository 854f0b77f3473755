"""What is asked of a sampler with pages, and how far each request is. Knows nothing of models."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

import numpy as np
import torch

from recollect.chat.rendering import Tokenizer
from recollect.sampler.pages import Page
from recollect.sampler.pick import Way
from recollect.sampler.requests import Heard, stop_reason
from recollect.types import Completion, Sampling


@dataclass(eq=False)
class PagedRequest:
    """One prompt being continued."""

    number: int
    prompt: np.ndarray
    sampling: Sampling
    done: asyncio.Future[Completion]
    heard: Heard | None = None
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    row: int = 0
    """In the last burst."""
    ids: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """What is read before a token is drawn: the prompt, and what was drawn before an eviction."""
    pages: list[Page] = field(default_factory=list)
    places: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """The places of the pages."""
    cached: int = 0
    """Tokens whose keys are in the pages once what was begun is done."""

    def give(self, pages: list[Page]) -> None:
        """Let it use more pages."""
        self.pages += pages
        self.places = np.append(self.places, [page.place for page in pages])

    @property
    def left(self) -> int:
        """Tokens it may still get."""
        return self.sampling.max_tokens - len(self.tokens)

    @property
    def whole(self) -> np.ndarray:
        """The prompt and all that was drawn."""
        return np.concatenate([self.prompt, np.array(self.tokens, dtype=np.int64)])

    def extend(
        self, tokens: list[int], logprobs: list[float], ends: Set[int], tokenizer: Tokenizer
    ) -> bool:
        """Append tokens up to where the sequence ends; tell whether it did, and resolve it then."""
        plain = not (self.heard or self.sampling.stop) and self.left > len(tokens)
        if plain and ends.isdisjoint(tokens):
            self.tokens += tokens
            self.logprobs += logprobs
            return False
        for token, logprob in zip(tokens, logprobs, strict=True):
            self.tokens.append(token)
            self.logprobs.append(logprob)
            if self.heard:
                self.heard(token, logprob)
            if reason := stop_reason(self.tokens, self.sampling, tokenizer):
                if not self.done.done():
                    done = Completion(tuple(self.tokens), tuple(self.logprobs), reason)
                    self.done.set_result(done)
                return True
        return False


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
        requests = [request for read in reads for request in read.requests]
        tokens, logprobs = (
            torch.cat(some)
            for some in ([r.tokens for r in reads], [r.logprobs for r in reads])
        )
        return cls(requests, tokens, logprobs)


def way_of(settings: Sequence[Sampling]) -> Way:
    """Find the cheapest way to pick tokens for all of some requests."""
    if all(s.temperature <= 0 for s in settings):
        return "greedy"
    plain = all(s.temperature > 0 and s.top_p >= 1 for s in settings)
    return "drawn" if plain else "mixed"

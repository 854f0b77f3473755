"""A sampler's requests, and the jobs that compute their prompts. Knows nothing of models."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from recollect.chat.rendering import Tokenizer
from recollect.foreign import storable
from recollect.sampler.dense_cache import Block, PromptRun
from recollect.types import Completion, Sampling, StopReason

Segments = tuple[tuple["DenseRequest", int], ...]
"""Who computes a prompt's tokens: how many each, in order."""

Heard = Callable[[int, float], None]
"""Called with every token and its logprob as soon as it is drawn."""


@dataclass(eq=False)
class DenseRequest:
    """One prompt being continued."""

    prompt: np.ndarray
    sampling: Sampling
    done: asyncio.Future[Completion]
    heard: Heard | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    slot: int = -1
    """-1 unless running."""
    block: Block | None = None
    base: int = 0
    """Tokens of the block that are read; the slot holds what follows them."""
    fresh: int = 0
    """Prompt tokens at the end that nothing cached covers."""
    segments: Segments = ()
    """The segments of the tokens in the slot; the request itself comes last."""

    @property
    def in_slot(self) -> int:
        """Tokens whose keys are in the slot: all but the block's and the newest one."""
        return len(self.prompt) - self.base + max(0, len(self.token_ids) - 1)


def stop_reason(ids: list[int], sampling: Sampling, tokenizer: Tokenizer) -> StopReason | None:
    """Say why a reply ends here, if it does."""
    if ids[-1] in tokenizer.end_ids:
        return "stop"
    if sampling.stop:
        # A stop text may begin in an earlier token: look back as many tokens as it has bytes.
        back = max(len(storable(text).encode()) for text in sampling.stop) + 1
        tail = tokenizer.decode(ids[-back:])
        if any(text in tail for text in sampling.stop):
            return "stop"
    return "length" if len(ids) >= sampling.max_tokens else None


NO_COPIES = np.zeros((4, 0), dtype=np.int64)


@dataclass(frozen=True)
class PrefillJob:
    """A run with its tokens; `request` if a prompt (not a block), `last` if it ends there."""

    run: PromptRun
    token_ids: np.ndarray
    copies: np.ndarray
    request: DenseRequest | None
    last: bool = True


def first_tokens(segments: Segments, size: int) -> Segments:
    """Cut segments to their first `size` tokens."""
    kept: list[tuple[DenseRequest, int]] = []
    for owner, count in segments:
        if size > 0:
            kept.append((owner, min(count, size)))
        size -= count
    return tuple(kept)


def copies_of(request: DenseRequest) -> np.ndarray:
    """Return (4, C): slot and place of every token to copy, and where it is copied from."""
    *others, _itself = request.segments
    size = sum(count for _owner, count in others)
    places = np.arange(size)
    owners = np.repeat([o.slot for o, _ in others], [n for _, n in others]).astype(np.int64)
    return np.stack([np.full(size, request.slot), places, owners, places])


def passes(jobs: list[PrefillJob], tokens: int) -> list[list[PrefillJob]]:
    """Cut the jobs, in order, into passes of at most `tokens`; a long run is cut as well."""
    result: list[list[PrefillJob]] = [[]]
    room = tokens
    for job in jobs:
        while job.run.size > room:
            if room:
                head, job = _split(job, room)
                result[-1].append(head)
            result.append([])
            room = tokens
        result[-1].append(job)
        room -= job.run.size
    return [some for some in result if some]


def _split(job: PrefillJob, size: int) -> tuple[PrefillJob, PrefillJob]:
    run = job.run
    head = dataclasses.replace(run, size=size)
    tail = dataclasses.replace(run, start=run.start + size, size=run.size - size, copied=None)
    return (
        dataclasses.replace(job, run=head, token_ids=job.token_ids[:size], last=False),
        dataclasses.replace(job, run=tail, token_ids=job.token_ids[size:], copies=NO_COPIES),
    )

"""The running sequences of a sampler with pages, as arrays: what a burst needs, and what it gave.

A sequence has a slot while it runs. A burst takes the slots in any order and touches no object of a
sequence, unless it ends there or someone listens to it. Knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set

import numpy as np
import torch

from recollect.chat.rendering import Tokenizer
from recollect.errors import UserError
from recollect.models.transfer import put
from recollect.sampler.bursts import BurstStart
from recollect.sampler.draw import uniforms
from recollect.sampler.paged_requests import PagedRequest
from recollect.sampler.pick import Way, pick
from recollect.types import StopReason

MASK = (1 << 64) - 1
Ended = tuple[PagedRequest, StopReason]


class Rows:
    """Slots for at most `count` sequences, each with at most `pages` pages of `size` tokens."""

    def __init__(self, count: int, pages: int, size: int) -> None:
        self.size = size
        self.pages = np.zeros((count, pages), dtype=np.int64)
        self.held = np.zeros(count, dtype=np.int64)
        """Pages of each."""
        self.cached = np.zeros(count, dtype=np.int64)
        """Tokens whose keys are in the pages."""
        self.drawn = np.zeros(count, dtype=np.int64)
        """Tokens drawn, with the first one, which may still be on the device ..."""
        self.known = np.zeros(count, dtype=np.int64)
        """... and those of them that have arrived and count."""
        self.limit = np.zeros(count, dtype=np.int64)
        self.seed = np.zeros(count, dtype=np.uint64)
        self.temperature, self.top_p = np.ones(count), np.ones(count)
        self.heard = np.zeros(count, dtype=bool)
        """Each of its tokens is looked at: someone listens, or a text may end it."""
        self.newest = np.zeros(count, dtype=np.int64)
        self.tokens = np.zeros((count, 128), dtype=np.int64)
        self.logprobs = np.zeros((count, 128), dtype=np.float32)
        self._requests: list[PagedRequest | None] = [None] * count
        self._free = list(range(count))[::-1]

    def join(self, request: PagedRequest) -> None:
        """Give a slot to a request whose prompt is read; its next token is on the device."""
        slot, sampling = self._free.pop(), request.sampling
        request.slot = slot
        self._requests[slot] = request
        held, known = len(request.places), len(request.tokens)
        self.held[slot] = held
        self.pages[slot, :held] = request.places
        self.cached[slot] = request.cached
        self.known[slot], self.drawn[slot] = known, known + 1
        self.limit[slot] = sampling.max_tokens
        self.seed[slot] = sampling.seed & MASK
        self.temperature[slot], self.top_p[slot] = sampling.temperature, sampling.top_p
        self.heard[slot] = bool(request.heard or sampling.stop)
        if known and not self.heard[slot]:
            self._reserve(known)
            self.tokens[slot, :known] = request.tokens
            self.logprobs[slot, :known] = request.logprobs

    def leave(self, request: PagedRequest) -> None:
        """Take a request out of its slot, with all that it has got."""
        slot = request.slot
        request.places = self.pages[slot, : self.held[slot]].copy()
        request.cached = int(self.cached[slot])
        if not self.heard[slot]:
            known = self.known[slot]
            request.tokens = self.tokens[slot, :known].tolist()
            request.logprobs = self.logprobs[slot, :known].tolist()
        request.slot, self._requests[slot] = -1, None
        self._free.append(slot)

    def missing(self, slots: np.ndarray, count: np.ndarray) -> np.ndarray:
        """Return the slots that need a page more for some tokens, at most as many as a page has."""
        needed = self.cached[slots] + count > self.held[slots] * self.size
        return slots[needed]

    def left(self, slots: np.ndarray) -> np.ndarray:
        """Return how many tokens each may still draw."""
        return self.limit[slots] - self.drawn[slots]

    def give(self, slots: np.ndarray, places: list[int]) -> None:
        """Give a page to each of some slots."""
        self.pages[slots, self.held[slots]] = places
        self.held[slots] += 1

    def begin(self, slots: np.ndarray, draws: int, compared: bool = False) -> BurstStart:
        """Say what a burst over some slots begins with, which may draw this many tokens each.

        If `compared`, also how much neighbours have in common.
        """
        held, drawn = self.held[slots], self.drawn[slots]
        temperature, top_p = self.temperature[slots], self.top_p[slots]
        used = np.arange(held.max()) < held[:, None]
        table = self.pages[slots, : used.shape[1]]
        return BurstStart(
            ids=self.newest[slots],
            lengths=self.cached[slots],
            pages=table[used],
            begin=np.cumsum(held) - held,
            common=self.size * pages_in_common(table, held) if compared else None,
            slots=slots,
            left=self.left(slots),
            temperature=temperature,
            top_p=top_p,
            uniform=uniforms(self.seed[slots], drawn + np.arange(draws)[:, None]),
            way=way_of(temperature, top_p),
        )

    def drew(self, slots: np.ndarray, count: np.ndarray) -> None:
        """Count the tokens that a burst has drawn for each."""
        self.cached[slots] += count
        self.drawn[slots] += count

    def extend(
        self,
        slots: np.ndarray,
        tokens_KB: np.ndarray,
        logprobs_KB: np.ndarray,
        ends: Set[int],
        tokenizer: Tokenizer,
        most: np.ndarray | int = 1,
    ) -> list[Ended]:
        """Append up to `most` tokens to sequences, to where each ends; return those that do."""
        count, most = len(tokens_KB), np.broadcast_to(most, len(slots))
        known, room = self.known[slots], self.limit[slots] - self.known[slots]
        self._reserve(int(known.max(initial=0)) + count)
        at_KB = known + np.arange(count)[:, None]
        self.tokens[slots, at_KB] = tokens_KB
        self.logprobs[slots, at_KB] = logprobs_KB
        is_end_KB = np.isin(tokens_KB, list(ends)) & (np.arange(count)[:, None] < most)
        to_end = np.where(is_end_KB.any(0), is_end_KB.argmax(0) + 1, count + 1)
        taken = np.minimum(np.minimum(to_end, room), most)
        if np.isnan(logprobs_KB[np.arange(count)[:, None] < taken]).any():
            raise UserError(
                "the model computes no numbers any more: its weights are damaged",
                "continue from an earlier checkpoint, with a lower --optim.lr",
            )
        self.known[slots] = known + taken
        self.newest[slots] = tokens_KB[taken - 1, np.arange(len(slots))]
        over = (taken == to_end) | (taken == room)
        ended: list[Ended] = []
        for row in np.flatnonzero(over & ~self.heard[slots]).tolist():
            request = self._requests[slots[row]]
            assert request is not None
            ended.append((request, "stop" if taken[row] == to_end[row] else "length"))
        ended += self._heard(slots, tokens_KB, logprobs_KB, most, tokenizer)
        return ended

    def _heard(
        self,
        slots: np.ndarray,
        tokens: np.ndarray,
        logprobs: np.ndarray,
        most: np.ndarray,
        tokenizer: Tokenizer,
    ) -> Iterator[Ended]:
        for row in np.flatnonzero(self.heard[slots]).tolist():
            slot, own = slots[row], slice(most[row])
            request = self._requests[slot]
            assert request is not None
            said, likely = tokens[own, row].tolist(), logprobs[own, row].tolist()
            reason = request.extend(said, likely, tokenizer)
            self.known[slot], self.newest[slot] = len(request.tokens), request.tokens[-1]
            if reason:
                yield request, reason

    def _reserve(self, size: int) -> None:
        width = self.tokens.shape[1]
        if size > width:
            more = ((0, 0), (0, max(size, 2 * width) - width))
            self.tokens, self.logprobs = np.pad(self.tokens, more), np.pad(self.logprobs, more)


def pages_in_common(table: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Return how many of its pages (B, P) each begins with as the one before it does."""
    differs = np.ones((len(held), table.shape[1] + 1), dtype=bool)
    np.not_equal(table[1:], table[:-1], out=differs[1:, :-1])
    return np.minimum(differs.argmax(1), np.minimum(held, np.roll(held, 1)))


def slots_of(requests: Iterable[PagedRequest]) -> np.ndarray:
    """Return the slots of requests."""
    return np.array([request.slot for request in requests], dtype=np.int64)


def first_picks(
    requests: Sequence[PagedRequest], logits: torch.Tensor, quick: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pick the token that follows each of some prompts."""
    settings = [request.sampling for request in requests]
    seeds = np.array([s.seed & MASK for s in settings], dtype=np.uint64)
    draws = uniforms(seeds, np.array([len(request.tokens) for request in requests]))
    temperature = np.array([s.temperature for s in settings], dtype=np.float32)
    top_p = np.array([s.top_p for s in settings], dtype=np.float32)
    there = [put(values, logits.device) for values in (temperature, top_p, draws)]
    return pick(logits, there[0], there[1], there[2], way_of(temperature, top_p), quick)


def way_of(temperature: np.ndarray, top_p: np.ndarray) -> Way:
    """Find the cheapest way to pick tokens for all of some requests."""
    drawn = temperature > 0
    if not drawn.any():
        return "greedy"
    return "drawn" if drawn.all() and (top_p >= 1).all() else "mixed"

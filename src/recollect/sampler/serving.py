"""Samplers for a server: a long prompt is read in pieces between others' tokens, short ones first.

Training reads prompts whole, which is faster; here nobody may wait for somebody else's prompt. A
long prompt becomes a block piece by piece, and its request is admitted when the block is whole.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from recollect.models.trie.pack import common_prefix
from recollect.sampler.dense import BLOCK_MIN, LEVELS, LocalPolicy
from recollect.sampler.dense_cache import Block, PromptRun
from recollect.sampler.paged import PAGE, PagedPolicy
from recollect.sampler.paged_requests import Read
from recollect.sampler.requests import NO_COPIES, DenseRequest, PrefillJob

PIECE = 64
"""Prompt tokens read in a step in which others get a token ..."""
IDLE_PIECE = 512
"""... and in one in which nobody does."""
ADMITTED = 256
"""Tokens of short prompts that are admitted in one step, unless one alone has more."""
READING = 8
"""Long prompts being read at once; a shorter one may come in between."""
AGING = 16
"""Tokens by which a request gets ahead with every step it waits."""
LIGHT_TIMES = 3.0
"""Seconds that light requests get for each one of the others."""
GPU_PIECE = 2048


@dataclass(eq=False)
class Prefilling:
    """A long prompt that becomes a block."""

    request: DenseRequest
    block: Block
    at: int
    """Tokens of the block that are there."""
    base: int
    """Tokens of it that the request will use."""
    copied: Block | None = None
    """Where the first tokens are copied from, with the first piece."""

    @property
    def left(self) -> int:
        """Tokens still to be read."""
        return self.base - self.at


class ServingPolicy(LocalPolicy):
    """Dense slots, for requests that do not know of one another."""

    def reset(self) -> None:
        """Forget all keys and values."""
        super().reset()
        self.owed = 0.0
        """Seconds that pieces of prompts took and that running sequences have not had since."""
        self._readings: dict[DenseRequest, Prefilling] = {}
        self._since: dict[DenseRequest, int] = {}

    @torch.inference_mode()
    def step(self) -> None:
        """Read a piece, admit what is ready, and give every running sequence a token."""
        self._clock += 1
        with self.model.autocast:
            self._retire([r for r in self._running if r.done.done()])  # cancelled by their askers
            self._forget()
            self._begin()
            if self.idle:
                with self.owing():
                    self._read()
            admitted = self._admit()
            if admitted:
                self._prefill(admitted)
                self._retire([r for r in self._running if self._finish(r)])
            if self._running:
                started = time.perf_counter()
                self._decode()
                self.owed -= time.perf_counter() - started
        self._retire([r for r in self._running if self._finish(r)])

    @property
    def idle(self) -> bool:
        """Whether something else may be computed: nobody runs, or who does has had as much time."""
        return not self._running or self.owed <= 0

    @contextmanager
    def owing(self, times: float = 1.0) -> Iterator[None]:
        """Note the time that something else takes; those who run get `times` as much after it."""
        started = time.perf_counter()
        before = max(0.0, self.owed) if self._running else 0.0  # nobody was kept waiting
        yield
        self.owed = before + times * (time.perf_counter() - started)

    @property
    def _others(self) -> bool:
        """Whether somebody waits for the end of a step."""
        return bool(self._running)

    async def free(self) -> None:
        """Wait until something else may be computed."""
        while (self._running or self._waiting) and self.owed > 0:
            await asyncio.sleep(0)

    def _rank(self, request: DenseRequest) -> int:
        size = len(request.prompt) + request.sampling.max_tokens
        return size - AGING * (self._clock - self._since.setdefault(request, self._clock))

    # --- read ------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Let go of what was read for those who no longer wait."""
        waiting = set(self._waiting)
        self._since = {r: at for r, at in self._since.items() if r in waiting}
        for reading in [r for r in self._readings.values() if r.request not in waiting]:
            del self._readings[reading.request]
            reading.block.users -= 1
            if reading.left and reading.block in self._blocks:
                self._blocks.remove(reading.block)

    def _begin(self) -> None:
        """Make blocks for long prompts that wait, as far as there is memory for them."""
        long = [r for r in self._waiting if len(r.prompt) >= BLOCK_MIN and r not in self._readings]
        for request in sorted(long, key=self._rank):
            going = [r for r in self._readings.values() if r.left]
            small = len(request.prompt) <= 4 * BLOCK_MIN
            held = sum(len(r.block.ids) for r in going) + len(request.prompt)
            if going and (len(going) >= READING * (1 + small) or 2 * held > self._budget):
                return
            self._plan(request, going)

    def _plan(self, request: DenseRequest, going: list[Prefilling]) -> None:
        prompt = request.prompt
        known, covered = self._known(prompt)
        if known and len(prompt) - covered <= PIECE:
            known.users += 1
            self._readings[request] = Prefilling(request, known, covered, covered)
            return
        for other in going:
            shared = min(common_prefix(other.block.ids, prompt), len(prompt) - 1) // 16 * 16
            if len(prompt) - shared <= PIECE:
                return  # somebody reads all of it: wait for that
            if min(shared, other.at) // 16 * 16 > covered:
                known, covered = other.block, min(shared, other.at) // 16 * 16
        size = (len(prompt) - 1) // 16 * 16
        block = self._cache.block(prompt[:size])
        block.users, block.used_at = 1, self._clock
        self._blocks.append(block)
        self._readings[request] = Prefilling(
            request, block, covered, size, known if covered else None
        )
        self._evict(self._budget // 2)

    def _known(self, prompt: np.ndarray) -> tuple[Block | None, int]:
        """Find a whole block that a prompt begins like, and how much of it is shared."""
        found = (self._block_index.get(prompt[:n].tobytes()) for n in reversed(LEVELS))
        known = next((block for block in found if block), None)
        if known is None:
            return None, 0
        return known, min(common_prefix(known.ids, prompt), len(prompt) - 1) // 16 * 16

    def _read(self) -> None:
        """Read a piece of the prompt that will be whole first."""
        going = [r for r in self._readings.values() if r.left]
        if not going:
            return
        reading = min(going, key=lambda r: r.left - AGING * (self._clock - self._since[r.request]))
        size = min(PIECE if self._others else IDLE_PIECE, reading.left)
        if not self._cache.keys:
            self._cache.reserve(1, 1, 0, self._budget)
        run = PromptRun(-1, reading.at, size, reading.block, copied=reading.copied)
        tokens = reading.block.ids[reading.at : reading.at + size]
        self._compute([PrefillJob(run, tokens, NO_COPIES, None)])
        reading.at += size
        reading.copied = None
        if not reading.left:
            for n in LEVELS:
                if BLOCK_MIN <= n <= reading.base:
                    self._block_index[reading.block.ids[:n].tobytes()] = reading.block

    # --- admit -----------------------------------------------------------------------------------

    def _admit(self) -> list[DenseRequest]:
        """Take the shortest that are ready; every step of waiting counts for some tokens."""
        ready = [r for r in self._waiting if self._is_ready(r)]
        chosen: list[DenseRequest] = []
        room = ADMITTED
        for request in sorted(ready, key=self._rank):
            fresh = len(request.prompt) if len(request.prompt) < BLOCK_MIN else PIECE
            if chosen and fresh > room:
                break
            chosen.append(request)
            room -= fresh
        left, self._waiting = set(self._waiting) - set(chosen), chosen
        order = self._since
        admitted = super()._admit()
        self._waiting = sorted([*self._waiting, *left], key=lambda r: order.get(r, self._clock))
        return admitted

    def _is_ready(self, request: DenseRequest) -> bool:
        if len(request.prompt) < BLOCK_MIN:
            return True
        reading = self._readings.get(request)
        return reading is not None and not reading.left

    def _take_block(self, request: DenseRequest) -> list[PrefillJob]:
        """Let a request use the block that was read for it."""
        reading = self._readings.pop(request)
        self._use(request, reading.block, reading.base)
        reading.block.users -= 1
        return []


class HeavyPolicy(ServingPolicy):
    """Requests that must not slow light ones down: they get a quarter of the time beside them."""

    def __init__(self, light: ServingPolicy, max_running: int) -> None:
        self.light = light
        whole = light.cache_bytes
        light.cache_bytes = whole // 4
        super().__init__(light.model, max_running, light.prefill_tokens, whole - whole // 4)

    @property
    def _others(self) -> bool:
        return bool(self._running or self.light._running or self.light._waiting)

    async def _settled(self) -> None:
        await super()._settled()
        await self.light.free()

    def step(self) -> None:
        """Take a step, for which light requests get a multiple of its time."""
        with self.light.owing(LIGHT_TIMES):
            super().step()


class ServingPagedPolicy(PagedPolicy):
    """Pages on a GPU, for requests that do not know of one another."""

    def _read(self) -> Read | None:
        """Read one pass: short prompts first and, while others get tokens, no more than a piece."""
        if not self._reading:
            return None
        unread = {page for r in self._reading for page in r.places[r.cached // PAGE :].tolist()}
        # Who shares pages that another still has to fill comes after that one.
        free = [
            r for r in self._reading if unread.isdisjoint(r.places[: r.cached // PAGE].tolist())
        ]
        free.sort(key=lambda r: (len(r.ids) - r.cached) // PAGE)
        first = set(free)
        self._reading = [*free, *(r for r in self._reading if r not in first)]
        whole = self.prefill_tokens
        self.prefill_tokens = min(whole, GPU_PIECE) if self._running else whole
        try:
            return self._pass()
        finally:
            self.prefill_tokens = whole

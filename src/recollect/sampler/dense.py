"""The in-process sampler: continuous batching over the trainer's own weights.

A step is three verbs: admit waiting requests, compute their prompts, give every running sequence
one more token. Requests join and leave at any step, so a short episode never waits for a long one.
Prompts that begin alike are computed once. Nothing depends on the clock: the same requests in the
same order give the same tokens. Where others decide when requests come, `hold` keeps it so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import numpy as np
import torch

from recollect.models.model import LoadedModel
from recollect.models.trie.pack import common_prefix
from recollect.sampler.dense_attention import DecodePlan, PrefillPlan
from recollect.sampler.dense_cache import Block, Cache, PromptRun
from recollect.sampler.draw import draw, uniforms
from recollect.sampler.requests import (
    NO_COPIES,
    DenseRequest,
    Heard,
    PrefillJob,
    copies_of,
    first_tokens,
    passes,
    stop_reason,
)
from recollect.types import Completion, Sampling

BLOCK_MIN = 256
"""Prompts at least this long are kept as blocks; shorter ones are cheaper to copy."""
HOPS = 16
"""Rounds of the event loop after which callers who got an answer have sent their next request."""
LEVELS = tuple(16 << i for i in range(20))
"""Prefix lengths under which prompts are looked up."""


class LocalPolicy:
    """Sample from a loaded model. One event loop, many requests in flight."""

    def __init__(
        self,
        model: LoadedModel,
        max_running: int = 512,
        prefill_tokens: int = 16384,
        cache_bytes: int = 4 << 30,
    ) -> None:
        self.model = model
        self.max_running = max_running
        self.prefill_tokens = prefill_tokens
        self.cache_bytes = cache_bytes
        self.hold: Callable[[], bool] | None = None
        """While it says true, no step is taken: answers of a server are on their way. What is
        computed together then does not depend on when they come, nor do the last bits of what is
        computed. It costs the time in which both could have worked."""
        self._driver: asyncio.Task[None] | None = None
        self._cache = Cache.of(model)
        self._waiting: list[DenseRequest] = []
        self._running: list[DenseRequest] = []
        self.reset()

    def reset(self) -> None:
        """Forget all keys and values, and be as new: the weights change, or a batch has ended."""
        if not all(r.done.done() for r in (*self._waiting, *self._running)):
            raise RuntimeError("the sampler cannot be reset while requests wait for it")
        self._waiting, self._running = [], []
        self._blocks: list[Block] = []
        self._block_index: dict[bytes, Block] = {}
        self._slot_index: dict[bytes, DenseRequest] = {}
        self._clock = 0
        self._cache.clear()

    @property
    def _budget(self) -> int:
        """Tokens whose keys and values fit the memory."""
        return self.cache_bytes // self._cache.bytes_per_token

    async def sample(
        self, prompt_ids: Sequence[int], sampling: Sampling, heard: Heard | None = None
    ) -> Completion:
        """Continue a prompt; returns when the sequence stops or meets its limit.

        `heard` is called with every token as it is drawn, between two steps of the sampler.
        """
        prompt = np.array(prompt_ids, dtype=np.int64)
        if (
            not len(prompt)
            or not 0 <= prompt.min() <= prompt.max() < self.model.tokenizer.vocab_size
        ):
            raise ValueError("a prompt needs at least one token, all of them in the vocabulary")
        request = DenseRequest(prompt, sampling, asyncio.get_running_loop().create_future(), heard)
        self._waiting.append(request)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        return await request.done

    async def _drive(self) -> None:
        """Step until no request is left, letting the askers run in between."""
        try:
            while True:
                await self._settled()
                self._waiting = [r for r in self._waiting if not r.done.done()]
                if not self._waiting and not self._running:
                    return
                self.step()
        except Exception as error:
            for request in (*self._waiting, *self._running):
                if not request.done.done():
                    request.done.set_exception(error)
            self.reset()

    async def _settled(self) -> None:
        """Let the askers run: once, or until none of them waits for anyone but us."""
        await asyncio.sleep(0)
        quiet = 0
        while self.hold and quiet < HOPS:
            busy = self.hold()
            quiet = 0 if busy else quiet + 1
            await asyncio.sleep(0.0005 if busy else 0)
        if self.hold:
            self._waiting.sort(key=lambda r: (r.prompt.astype(">u4").tobytes(), r.sampling.seed))

    @torch.inference_mode()
    def step(self) -> None:
        """Admit, prefill and decode once."""
        self._clock += 1
        with self.model.autocast:
            self._retire([r for r in self._running if r.done.done()])  # cancelled by their askers
            admitted = self._admit()
            if admitted:
                self._prefill(admitted)
            else:
                self._decode()
        self._retire([r for r in self._running if self._finish(r)])

    # --- admit -----------------------------------------------------------------------------------

    def _admit(self) -> list[DenseRequest]:
        """Take waiting requests, first come first served, while slots and memory last."""
        if not self._waiting:
            return []
        admitted: list[DenseRequest] = []
        longest = max((self._length(r) for r in self._running), default=0)
        blocks = sum(len(b.ids) for b in self._blocks if b.users)
        for request in self._waiting:
            longest = max(longest, len(request.prompt) + request.sampling.max_tokens)
            count = len(self._running) + len(admitted) + 1
            full = count > self.max_running or count * longest + blocks > self._budget
            if full and count > 1:
                break
            admitted.append(request)
        del self._waiting[: len(admitted)]
        # Prompts that begin alike become neighbours, so that each finds the one before it.
        admitted.sort(key=lambda r: r.prompt.astype(">u4").tobytes())
        return admitted

    @staticmethod
    def _length(request: DenseRequest) -> int:
        return len(request.prompt) - request.base + request.sampling.max_tokens

    # --- prefill ---------------------------------------------------------------------------------

    def _prefill(self, admitted: list[DenseRequest]) -> None:
        """Compute the admitted prompts, each from where something cached already covers it."""
        jobs: list[PrefillJob] = []
        for request in admitted:
            if len(request.prompt) >= BLOCK_MIN:
                jobs += self._take_block(request)
            else:
                self._find_neighbour(request)
        # Whoever computes a token comes before whoever copies it, and runs of one size stand side
        # by side, so that they attend together.
        admitted.sort(key=lambda r: (len(r.segments), r.base, r.fresh))
        for request in admitted:
            request.slot = len(self._running)
            self._running.append(request)
        for request in admitted:
            start = len(request.prompt) - request.base - request.fresh
            run = PromptRun(request.slot, start, request.fresh, request.block, request.base)
            tokens = request.prompt[len(request.prompt) - request.fresh :]
            jobs.append(PrefillJob(run, tokens, copies_of(request), request))
        length = max(self._length(r) for r in self._running)
        count = len(self._running)
        held = self._evict(self._budget - count * length)
        self._cache.reserve(count, length, count - len(admitted), self._budget - held)
        hidden: dict[DenseRequest, torch.Tensor] = {}
        for some in passes(jobs, self.prefill_tokens):
            hidden |= self._compute(some)
        self._append(admitted, torch.stack([hidden[r] for r in admitted]))

    def _take_block(self, request: DenseRequest) -> list[PrefillJob]:
        """Let a long prompt read the block that covers most of it, or make it one of its own."""
        prompt = request.prompt
        known = next(
            (b for n in reversed(LEVELS) if (b := self._block_index.get(prompt[:n].tobytes()))),
            None,
        )
        covered = 0
        if known:
            # Rounded down, so that siblings whose texts part at slightly different places still
            # read the block together; at least one token is left to compute the reply from.
            covered = min(common_prefix(known.ids, prompt), len(prompt) - 1) // 16 * 16
        if known and (2 * covered >= len(prompt) or len(prompt) - covered < BLOCK_MIN):
            self._use(request, known, covered)
            return []
        size = (len(prompt) - 1) // 16 * 16
        block = self._cache.block(prompt[:size])
        self._use(request, block, size)
        self._blocks.append(block)
        for n in LEVELS:
            if BLOCK_MIN <= n <= size:
                self._block_index[prompt[:n].tobytes()] = block
        self._evict(self._budget // 2)
        run = PromptRun(-1, covered, size - covered, block, copied=known if covered else None)
        return [PrefillJob(run, prompt[covered:size], NO_COPIES, None)]

    def _use(self, request: DenseRequest, block: Block, base: int) -> None:
        request.block, request.base = block, base
        request.fresh = len(request.prompt) - base
        request.segments = ((request, request.fresh),)
        block.users += 1
        block.used_at = self._clock

    def _evict(self, room: int) -> int:
        """Drop the longest unused idle blocks while blocks hold more tokens than `room`.

        Return how many they hold then.
        """
        held = sum(len(b.ids) for b in self._blocks)
        gone = set()
        idle = (b for b in self._blocks if not b.users)
        for block in sorted(idle, key=lambda b: b.used_at):
            if held <= room:
                break
            held -= len(block.ids)
            gone.add(block)
        if gone:
            self._blocks = [b for b in self._blocks if b not in gone]
            self._block_index = {k: b for k, b in self._block_index.items() if b not in gone}
        return held

    def _find_neighbour(self, request: DenseRequest) -> None:
        """Let a short prompt copy its beginning from another one that begins alike."""
        prompt = request.prompt
        names = [prompt[:n].tobytes() for n in LEVELS if n <= len(prompt)]
        donor = next((d for n in reversed(names) if (d := self._slot_index.get(n))), None)
        start = min(common_prefix(donor.prompt, prompt), len(prompt) - 1) if donor else 0
        self._slot_index.update(dict.fromkeys(names, request))
        if donor:
            # A donor that runs already holds all its tokens; one of this batch still copies some
            # itself, and those are taken from where they are computed.
            sources = donor.segments if donor.slot < 0 else ((donor, len(donor.prompt)),)
            request.segments = first_tokens(sources, start)
        request.segments = (*request.segments, (request, len(prompt) - start))
        request.fresh = len(prompt) - start

    def _compute(self, jobs: list[PrefillJob]) -> dict[DenseRequest, torch.Tensor]:
        """Run one pass; return the last hidden state of every prompt that ends in it."""
        device = self.model.device
        runs = [job.run for job in jobs]
        ids = torch.from_numpy(np.concatenate([job.token_ids for job in jobs])).to(device)
        at = [np.arange(r.base + r.start, r.base + r.start + r.size) for r in runs]
        positions = torch.from_numpy(np.concatenate(at)).to(device)
        copies = torch.from_numpy(np.concatenate([job.copies for job in jobs], 1)).to(device)
        hidden = self.model.hidden(ids, positions, PrefillPlan(self._cache, runs, copies))
        ends = np.cumsum([r.size for r in runs]) - 1
        return {
            job.request: hidden[end]
            for job, end in zip(jobs, ends, strict=True)
            if job.request is not None and job.last
        }

    # --- decode ----------------------------------------------------------------------------------

    def _decode(self) -> None:
        """Give every running sequence its next token."""
        device = self.model.device
        running = self._running
        lengths = np.array([r.in_slot for r in running])
        bases = np.array([r.base for r in running])
        ids = torch.tensor([r.token_ids[-1] for r in running], device=device)
        readers: dict[tuple[Block, int], list[int]] = {}
        for row, request in enumerate(running):
            if request.block:
                readers.setdefault((request.block, request.base), []).append(row)
        plan = DecodePlan(
            self._cache,
            torch.from_numpy(lengths).to(device),
            int(lengths.max()),
            torch.from_numpy(bases).to(device),
            [(b, n, torch.tensor(rows, device=device)) for (b, n), rows in readers.items()],
        )
        positions = torch.from_numpy(lengths + bases).to(device)
        self._append(running, self.model.hidden(ids, positions, plan))

    def _append(self, requests: list[DenseRequest], hidden: torch.Tensor) -> None:
        settings = [r.sampling for r in requests]
        tokens, logprobs = draw(
            self.model.logits(hidden),
            np.array([s.temperature for s in settings]),
            np.array([s.top_p for s in settings]),
            uniforms(
                np.array([s.seed for s in settings]),
                np.array([len(r.token_ids) for r in requests]),
            ),
        )
        for request, token, logprob in zip(requests, tokens, logprobs, strict=True):
            request.token_ids.append(token)
            request.logprobs.append(logprob)
            if request.heard:
                request.heard(token, logprob)

    # --- finish ----------------------------------------------------------------------------------

    def _finish(self, request: DenseRequest) -> bool:
        """Resolve a request that has come to its end."""
        reason = stop_reason(request.token_ids, request.sampling, self.model.tokenizer)
        if reason is None:
            return False
        if not request.done.done():
            done = Completion(tuple(request.token_ids), tuple(request.logprobs), reason)
            request.done.set_result(done)
        return True

    def _retire(self, finished: list[DenseRequest]) -> None:
        """Free slots and move the last running sequences into the holes."""
        if not finished:
            return
        gone = set(finished)
        kept = len(self._running) - len(gone)
        holes = sorted(r.slot for r in gone if r.slot < kept)
        movers = [r for r in self._running[kept:] if r not in gone]
        if movers:
            self._cache.move([r.slot for r in movers], holes, max(r.in_slot for r in movers))
        for request, hole in zip(movers, holes, strict=True):
            self._running[hole] = request
            request.slot = hole
        del self._running[kept:]
        for request in finished:
            request.slot = -1
            if request.block:
                request.block.users -= 1
        self._slot_index = {k: r for k, r in self._slot_index.items() if r not in gone}

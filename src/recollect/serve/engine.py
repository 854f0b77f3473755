"""The engine of a server: the sampler in a thread and an event loop of its own.

So the web server's loop never waits for torch, nor torch for a slow client. Requests and tokens
cross between the two loops, and the tokens of one step cross together. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from recollect.models.model import LoadedModel
from recollect.sampler.choice import open_sampler
from recollect.sampler.dense_attention import PrefillPlan
from recollect.sampler.dense_cache import Block, Cache, PromptRun
from recollect.sampler.paged import DRAFTS
from recollect.sampler.requests import NO_COPIES
from recollect.sampler.serving import LIGHT_TIMES, HeavyPolicy, ServingPolicy
from recollect.types import Completion, Sampling

T = TypeVar("T")
Heard = Callable[[int, float], None]
Call = tuple[Heard, int, float]

ROWS = 64
"""Positions scored at once: others get their tokens in between."""
HEAVY = 64
"""Long or numerous sequences computed at once: the more, the longer light ones wait for a step."""
FLOOR = -9999.0
"""Stands for minus infinity, which JSON cannot write."""


@dataclass(frozen=True)
class Likelihoods:
    """How likely each token of a sequence was, and what would have been likelier."""

    logprobs: list[float]
    top: list[list[tuple[int, float]]]
    """The most likely tokens at each place, the likeliest first."""


class Engine:
    """One model behind a thread; its methods may be called from any event loop."""

    def __init__(
        self, model: LoadedModel, max_running: int, cache_gib: float, drafts: int = DRAFTS
    ) -> None:
        self.model = model
        self.max_running = max_running
        self.policy = open_sampler(model, cache_gib, max_running, serving=True, drafts=drafts)
        self._heavy: HeavyPolicy | None = None
        if isinstance(self.policy, ServingPolicy):
            self._heavy = HeavyPolicy(self.policy, min(max_running, HEAVY))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._scoring = asyncio.Lock()
        """One sequence is scored at a time: a piece of it between two steps of the sampler."""
        self._spoken: dict[asyncio.AbstractEventLoop, list[Call]] = {}
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    @property
    def alive(self) -> bool:
        """Whether requests are still served."""
        return self._thread.is_alive()

    async def close(self) -> None:
        """Cancel what is left and end the thread."""

        async def cancel() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        await self._call(cancel())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)

    async def sample(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        heard: Heard | None = None,
        light: bool = True,
    ) -> Completion:
        """Continue a prompt; cancelling this frees what the engine holds for it.

        `heard` is called in the asker's loop with every token, as soon as it is drawn. Where there
        are light requests, others get a quarter of the time.
        """
        asker = asyncio.get_running_loop()

        def speak(token: int, logprob: float) -> None:
            assert heard is not None
            if not self._spoken:
                self._loop.call_soon(self._deliver)
            self._spoken.setdefault(asker, []).append((heard, token, logprob))

        paced = isinstance(self.policy, ServingPolicy) and not light
        policy = self._heavy if paced and self._heavy else self.policy
        return await self._call(policy.sample(prompt_ids, sampling, speak if heard else None))

    def _deliver(self) -> None:
        """Carry a step's tokens over to those who asked for them."""
        spoken, self._spoken = self._spoken, {}
        for loop, calls in spoken.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_hear, calls)

    async def score(
        self, token_ids: Sequence[int], start: int, temperature: float, top: int
    ) -> Likelihoods:
        """Score the tokens from `start` on (at least 1), given all those before each."""

        async def alone() -> Likelihoods:
            async with self._scoring:
                return await self._score(token_ids, start, temperature, top)

        return await self._call(alone())

    async def _score(
        self, token_ids: Sequence[int], start: int, temperature: float, top: int
    ) -> Likelihoods:
        score = Likelihoods([], [])
        cache = Cache.of(self.model)
        cache.reserve(1, 1, 0, len(token_ids))
        # Filled up to whole passes: what follows a token then changes not one bit of its score.
        size = -(-(len(token_ids) - 1) // ROWS) * ROWS
        padded = np.zeros(size, dtype=np.int64)
        padded[: len(token_ids) - 1] = token_ids[:-1]
        block = cache.block(padded)
        for at in range(0, size, ROWS):
            await asyncio.sleep(0)  # others get their tokens in between
            logprobs = await self._in_turn(partial(self._logprobs, cache, block, at, temperature))
            end = min(at + ROWS, len(token_ids) - 1)
            first = max(at, start - 1)  # what is computed at a place scores the token after it
            if first < end:
                own = logprobs[first - at : end - at]
                self._add_scores(score, own, token_ids[first + 1 : end + 1], top)
        return score

    async def _in_turn(self, work: Callable[[], T]) -> T:
        """Do some work once those who are given tokens have had their share of the time."""
        if not isinstance(self.policy, ServingPolicy):
            return work()
        await self.policy.free()
        with self.policy.owing(LIGHT_TIMES):
            return work()

    @torch.inference_mode()
    def _logprobs(self, cache: Cache, block: Block, at: int, temperature: float) -> torch.Tensor:
        """Read a pass of tokens after those before it; return what may follow each of them."""
        model = self.model
        ids = torch.from_numpy(block.ids[at : at + ROWS]).to(model.device)
        positions = torch.arange(at, at + ROWS, device=model.device).clamp(max=model.window - 1)
        copies = torch.from_numpy(NO_COPIES).to(model.device)
        plan = PrefillPlan(cache, [PromptRun(-1, at, ROWS, block)], copies)
        with model.autocast:
            logits = model.logits(model.hidden(ids, positions, plan))
            return (logits / (temperature or 1.0)).log_softmax(-1).clamp(min=FLOOR)

    @torch.inference_mode()
    def _add_scores(
        self, score: Likelihoods, logprobs: torch.Tensor, token_ids: Sequence[int], top: int
    ) -> None:
        ids = torch.tensor(token_ids, device=self.model.device)
        score.logprobs.extend(logprobs.gather(1, ids[:, None])[:, 0].tolist())
        best = logprobs.topk(min(top, logprobs.shape[1]), -1)
        for tokens, values in zip(best.indices.tolist(), best.values.tolist(), strict=True):
            score.top.append(list(zip(tokens, values, strict=True)))

    async def _call(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return await asyncio.wrap_future(future)


def _hear(calls: list[Call]) -> None:
    for heard, token, logprob in calls:
        heard(token, logprob)

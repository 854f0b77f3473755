"""Give running sequences tokens: in bursts of single ones, or with drafts where these pay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from recollect.errors import on_stderr
from recollect.models.model import LoadedModel
from recollect.models.tokenizer import first_line
from recollect.sampler.bursts import Burst, BurstRows, BurstStart
from recollect.sampler.decode import UNRECORDED, Decoder
from recollect.sampler.drafts import Drafter
from recollect.sampler.history import History
from recollect.sampler.pace import Pace
from recollect.sampler.paged_attention import PagedCache
from recollect.sampler.paged_requests import PagedRequest, Read
from recollect.sampler.pick import Way
from recollect.sampler.prefixes import SharedRows

LOOKED_BACK = 4096
"""Tokens of a sequence that drafts are looked for in."""


@dataclass(frozen=True)
class Plan:
    """How the next burst works."""

    steps: int
    tokens: int
    """Most tokens that a sequence gets."""
    drafts: bool
    narrow: bool

    def needs(self, left: np.ndarray) -> np.ndarray:
        """Return how many tokens of each sequence may be written, from what each may draw."""
        # With drafts a sequence ends on the device, where its newest token is then read again.
        return np.minimum(left + 1, self.tokens) if self.drafts else np.full(len(left), self.tokens)


class Extender:
    """Extend the sequences of a cache; drafts have at most `drafts` tokens, 0 for none."""

    def __init__(
        self,
        model: LoadedModel,
        cache: PagedCache,
        rows: int,
        pages: int,
        burst: int,
        drafts: int,
        longest: int,
        quick: bool = False,
        shared: SharedRows | None = None,
        say: Callable[[str], None] = on_stderr,
    ) -> None:
        staged = BurstRows(rows, max(burst, cache.size), pages, rows, cache.device)
        history, self.drafter = None, None
        if drafts:
            history = History(rows, min(longest, LOOKED_BACK), drafts, cache.device)
            steps = cache.size // (drafts + 1)
            self.drafter = Drafter(model, cache, staged, history, steps, quick)
        self.decoder = Decoder(model, cache, staged, burst, history, quick, shared, say)
        self._say = say
        self.pace = Pace()

    @property
    def totals(self) -> Counter[str]:
        """Steps of the model, tokens of replies, tokens drafted and accepted."""
        return self.pace.totals

    def counts(self) -> Counter[str]:
        """Return the totals since this was last asked."""
        found, self.pace.totals = self.pace.totals, Counter()
        return found

    def record(self) -> None:
        """Record the smallest steps; what cannot be recorded and is not needed is left out."""
        self.decoder.record(8, "drawn")
        if self.drafter:
            self._record_drafts(self.drafter, 1, "drawn", False)
        self.decoder.record_shared(8, "drawn")

    def _record_drafts(self, drafter: Drafter, count: int, way: Way, narrow: bool) -> bool:
        """Record a step with drafts; if that fails, say why, and guess no more."""
        try:
            drafter.record(count, way, narrow)
            return True
        except Exception as error:  # a graph cannot hold it, or the GPU has no memory for it
            self.drafter = self.decoder.history = None
            self._say(f"no tokens are guessed: {UNRECORDED} ({first_line(error)})")
            return False

    def enter(self, read: Read) -> None:
        """Take in sequences whose prompts were just read."""
        if self.drafter:
            self.drafter.enter(read.requests, read.tokens)

    def learn(self, request: PagedRequest) -> None:
        """Learn from a reply that is whole, or was cancelled."""
        if self.drafter and request.tokens:
            self.drafter.recent.add(request.prompt, request.tokens)

    def clear(self) -> None:
        """Forget replies."""
        if self.drafter:
            self.drafter.recent.clear()

    def plan(self, left: np.ndarray) -> Plan:
        """Choose how to work on sequences that may still draw this many tokens each."""
        most = max(1, int(left.max()))
        if self.drafter and self.drafter.fits(len(left)) and self.pace.drafts(len(left)):
            steps = min(self.drafter.max_steps, most)
            return Plan(steps, steps * self.drafter.width, True, self.pace.narrow)
        steps = min(self.decoder.max_steps, most)
        return Plan(steps, steps, False, False)

    def compares(self, plan: Plan) -> bool:
        """Tell whether a burst has to know what its sequences have in common."""
        return not plan.drafts and self.decoder.shared is not None

    def burst(
        self, plan: Plan, rows: BurstStart, at: torch.Tensor | None, newest: torch.Tensor | None
    ) -> Burst:
        """Begin a burst; the newest tokens of the rows `at` are still on the device."""
        if plan.drafts and (drafter := self.drafter):
            if self._record_drafts(drafter, len(rows.ids), rows.way, plan.narrow):
                return drafter.burst(rows, plan.steps, plan.narrow, at, newest)
            # The pages are those that drafts need: a sequence near its end has room for one token.
            rows = replace(rows, uniform=rows.uniform[:1])
        return self.decoder.burst(rows, at, newest)

    def counted(self, burst: Burst) -> np.ndarray:
        """Return (B,): tokens that a burst gave each sequence; remember what they took."""
        tokens, rows = burst.tokens.shape
        if burst.counts is None or self.drafter is None:
            self.pace.plain(rows, tokens, burst.seconds)
            return np.full(rows, tokens)
        counts = burst.counts.numpy()
        made, active, drafted = counts.sum(1).tolist()
        steps = tokens // self.drafter.width
        self.pace.drafted(rows, steps, burst.seconds, made, active, drafted)
        return counts[0]

"""Many tokens for many sequences without the host: a burst of steps, replayed on a GPU.

What a step reads and writes stays on the device, so a burst needs the host only before its first
step and after its last.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from recollect.errors import on_stderr
from recollect.models.model import LoadedModel
from recollect.models.tokenizer import first_line
from recollect.sampler.bursts import Burst, BurstRows, BurstStart, fetched, started
from recollect.sampler.graphs import Graphs, rounded
from recollect.sampler.history import History
from recollect.sampler.paged_attention import PagedCache, TokenPlan
from recollect.sampler.pick import Way, pick
from recollect.sampler.prefixes import SharedRows, Tiles

UNRECORDED = "such steps cannot be recorded"


class Decoder:
    """Extend the sequences of a cache, one token at each step."""

    def __init__(
        self,
        model: LoadedModel,
        cache: PagedCache,
        rows: BurstRows,
        steps: int,
        history: History | None = None,
        quick: bool = False,
        shared: SharedRows | None = None,
        say: Callable[[str], None] = on_stderr,
    ) -> None:
        if steps > cache.size:
            raise ValueError("a burst is no longer than a page: padding has one to itself")
        self.model = model
        self.cache = cache
        self.max_rows = rows.ints.there.shape[1]
        self.max_steps = steps
        self.history = history
        """Keeps what is drawn, for those who draft from it."""
        self.quick = quick
        """Whether our own kernels pick tokens, where they can."""
        self.shared = shared
        """Where it is put what sequences begin with alike, if that is read once."""
        self._say = say
        device = cache.device
        self._graphs = Graphs() if device.type == "cuda" else None
        self._rows = rows
        self._step = torch.zeros(1, dtype=torch.long, device=device)
        self._tokens = torch.zeros(steps, self.max_rows, dtype=torch.long, device=device)
        self._logprobs = torch.zeros(steps, self.max_rows, device=device)

    def burst(
        self, rows: BurstStart, at: torch.Tensor | None = None, newest: torch.Tensor | None = None
    ) -> Burst:
        """Begin to give every sequence as many tokens as there are draws.

        The newest tokens of the rows `at` are still on the device.
        """
        count, steps = len(rows.ids), len(rows.uniform)
        size = rounded(count, self.max_rows)
        tiles = self._tiles(rows, size)
        shares = tiles is not None
        self.record(size, rows.way, shares)
        self._rows.load(rows, size, at, newest)
        if self.shared and tiles:
            self.shared.load(tiles)
        self._step.zero_()
        began = started(self.cache.device)
        for _ in range(steps):
            if self._graphs:
                self._graphs.replay((size, rows.way, shares))
            else:
                self._extend(size, rows.way, shares)
        tokens_KB = self._tokens[:steps, :count]
        if self.history:
            slots_B, even_B = self._rows.ints.there[3, :count], self._step.expand(count)
            self.history.append(slots_B, tokens_KB.T, even_B)
        return fetched(tokens_KB, self._logprobs[:steps, :count], began)

    def _tiles(self, rows: BurstStart, size: int) -> Tiles | None:
        """Find what is read once, if anything is and such a step can be recorded."""
        if self.shared is None or rows.common is None:
            return None
        tiles = self.shared.find(rows.common, rows.lengths)
        return tiles if tiles and self.record_shared(size, rows.way) else None

    def record_shared(self, size: int, way: Way) -> bool:
        """Record a step that reads once what is shared; if that fails, say why, and do without."""
        if self.shared is None:
            return False
        try:
            self.record(size, way, True)
            return True
        except Exception as error:  # a kernel that this GPU does not take, or no memory for it
            self.shared = None
            self._say(f"siblings' keys are read for each: {UNRECORDED} ({first_line(error)})")
            return False

    def record(self, size: int, way: Way, shares: bool = False) -> None:
        """Record a step of this many rows, if steps are recorded."""
        if self._graphs:
            name = (size, way, shares)
            self._graphs.record(name, lambda: self._extend(size, way, shares), self._blank)

    def _blank(self) -> None:
        self._rows.blank()
        self._step.zero_()
        if self.shared:
            self.shared.blank()

    def _extend(self, size: int, way: Way, shares: bool) -> None:
        """Give every row one more token."""
        ids, lengths, begin = self._rows.ints.there[:3, :size]
        shared = self.shared.of(size) if self.shared and shares else None
        with self.model.autocast:
            plan = TokenPlan(self.cache, self._rows.pages.there, begin, lengths, shared)
            logits = self.model.logits(self.model.hidden(ids, lengths, plan))
        floats = self._rows.floats.there[:, :size]
        uniform = floats[2:].index_select(0, self._step)[0]
        tokens, logprobs = pick(logits, floats[0], floats[1], uniform, way, self.quick)
        self._tokens[:, :size].index_copy_(0, self._step, tokens[None])
        self._logprobs[:, :size].index_copy_(0, self._step, logprobs[None])
        ids.copy_(tokens)
        lengths.add_(1)
        self._step.add_(1)

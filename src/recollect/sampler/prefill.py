"""Read prompts into the cache: runs of new tokens, each at the end of its sequence.

Short passes, which a GPU finishes faster than a host can start them, are recorded and replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from recollect.models.model import LoadedModel
from recollect.models.transfer import put
from recollect.sampler.graphs import Graphs, Staged, rounded
from recollect.sampler.paged_attention import PagedCache, Program, PromptPlan
from recollect.sampler.paged_requests import PagedRequest
from recollect.sampler.prefixes import head_shape

SHORT = 1 << 14
"""Tokens up to which a pass is recorded ..."""
STEP = 64
"""... and what their number is a multiple of."""


@dataclass(frozen=True)
class Runs:
    """R runs of new tokens."""

    ids: np.ndarray
    """(N,): the new tokens, run after run."""
    sizes: np.ndarray
    """(R,): new tokens of every run ..."""
    lengths: np.ndarray
    """... and all tokens of its sequence, the new ones last."""
    pages: np.ndarray
    """The places of the sequences' pages, one after the other."""
    begin: np.ndarray
    """(R,): where each sequence's pages begin among them."""

    @classmethod
    def of(cls, requests: Sequence[tuple[PagedRequest, int]]) -> Runs:
        """Take the next tokens of each request: as many as the number beside it."""
        counts = np.array([len(request.places) for request, _ in requests])
        return cls(
            np.concatenate([r.ids[r.cached : r.cached + size] for r, size in requests]),
            np.array([size for _, size in requests]),
            np.array([request.cached + size for request, size in requests]),
            np.concatenate([request.places for request, _ in requests]),
            np.cumsum(counts) - counts,
        )


class Prefill:
    """Compute the keys and values of new tokens."""

    def __init__(
        self, model: LoadedModel, cache: PagedCache, rows: int, tokens: int, pages: int
    ) -> None:
        self.model = model
        self.cache = cache
        device = cache.device
        self._graphs = Graphs() if device.type == "cuda" else None
        self._short = min(SHORT, tokens)
        self._tokens = Staged((3, tokens), torch.long, device)
        """Id, position, place."""
        table = cache.table
        times = head_shape(model.network.config)[0] // table.shape[-2]
        self._tile = Program.of(table.shape[-1], table.dtype).tile(times)
        self._tiles = Staged((2, tokens // self._tile + rows), torch.long, device)
        """Run and first token of every tile; run -1 is empty."""
        self._runs = Staged((3, rows), torch.long, device)
        """Where its new tokens end, its length, where its pages begin."""
        self._pages = Staged((pages,), torch.int32, device)
        self._hidden = torch.empty(0)
        """(short, width): what a recorded pass leaves."""

    def read(self, runs: Runs) -> torch.Tensor:
        """Run one pass; return the hidden state of every run's last token."""
        count = len(runs.ids)
        ends = np.cumsum(runs.sizes) - 1
        if self._graphs is None or count > self._short:
            self._load(runs, count)
            return self._compute(count)[put(ends, self.cache.device)]
        size = self.record(count)
        self._load(runs, size)
        self._graphs.replay(size)
        return self._hidden[put(ends, self.cache.device)]

    def record(self, count: int) -> int:
        """Record a pass of this many tokens; return how many it takes."""
        assert self._graphs is not None
        size = rounded(count, self._short, STEP)
        self._graphs.record(size, lambda: self._leave(size), self._blank)
        return size

    def _load(self, runs: Runs, size: int) -> None:
        count, rows, page = len(runs.ids), len(runs.sizes), self.cache.size
        ends = np.cumsum(runs.sizes)
        run = np.repeat(np.arange(rows), runs.sizes)
        position = runs.lengths[run] - ends[run] + np.arange(count)
        place = runs.pages[runs.begin[run] + position // page] * page + position % page
        tokens, tiles_of = self._tokens.host, self._tiles.host
        tokens[:, :count] = runs.ids, position, place
        tokens[:, count:size] = 0  # written to the page that no sequence owns
        tiles = -(-runs.sizes // self._tile)
        of = np.repeat(np.arange(rows), tiles)
        first = (ends - runs.sizes)[of] + self._tile * (
            np.arange(len(of)) - (np.cumsum(tiles) - tiles)[of]
        )
        tiles_of[:, : len(of)] = of, first
        tiles_of[0, len(of) :] = -1
        self._runs.host[:, :rows] = ends, runs.lengths, runs.begin
        self._pages.host[: len(runs.pages)] = runs.pages
        for staged in (self._tokens, self._tiles, self._runs):
            staged.send()
        self._pages.send(len(runs.pages))

    def _blank(self) -> None:
        self._tokens.there.zero_()
        self._tiles.there.fill_(-1)
        if not len(self._hidden):
            width = self.model.network.config.get_text_config().hidden_size
            self._hidden = torch.empty(self._short, width, device=self.cache.device)

    def _leave(self, size: int) -> None:
        self._hidden[:size] = self._compute(size)

    def _compute(self, size: int) -> torch.Tensor:
        ids, positions, into = self._tokens.there[:, :size]
        rows = self._runs.there.shape[1]
        tiles = self._tiles.there[:, : min(size, size // self._tile + rows)]
        plan = PromptPlan(self.cache, into, tiles, self._runs.there, self._pages.there, self._tile)
        with self.model.autocast:
            return self.model.hidden(ids, positions, plan)

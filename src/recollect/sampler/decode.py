"""Many tokens for many sequences without the host: a burst of steps, replayed on a GPU.

What a step reads and writes stays on the device, so a burst needs the host only before its first
step and after its last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from recollect.models.model import LoadedModel
from recollect.sampler.graphs import Graphs, Staged, rounded
from recollect.sampler.paged_attention import PagedCache, TokenPlan
from recollect.sampler.pick import Way, pick


@dataclass(frozen=True)
class BurstStart:
    """What a burst begins with: B sequences, each with a newest token that is not cached yet."""

    ids: np.ndarray
    """(B,): the newest tokens."""
    lengths: np.ndarray
    """(B,): tokens in the cache."""
    pages: np.ndarray
    """The places of their pages, sequence after sequence."""
    begin: np.ndarray
    """(B,): where each sequence's pages begin among them."""
    temperature: np.ndarray
    top_p: np.ndarray
    uniform: np.ndarray
    """(K, B): one draw for every token of the burst."""
    way: Way


@dataclass
class Burst:
    """Tokens on their way to the host."""

    tokens: torch.Tensor
    """(K, B)"""
    logprobs: torch.Tensor
    done: torch.cuda.Event | None = None

    def ready(self) -> bool:
        """Tell whether they have arrived."""
        return self.done is None or self.done.query()


class Decoder:
    """Extend the sequences of a cache."""

    def __init__(
        self, model: LoadedModel, cache: PagedCache, rows: int, steps: int, pages: int
    ) -> None:
        if steps > cache.size:
            raise ValueError("a burst is no longer than a page: padding has one to itself")
        self.model = model
        self.cache = cache
        self.max_rows = rows
        self.max_steps = steps
        device = cache.device
        self._graphs = Graphs() if device.type == "cuda" else None
        self._ints = Staged((3, rows), torch.long, device)
        """Newest token, tokens in the cache, where its pages begin."""
        self._floats = Staged((2 + steps, rows), torch.float64, device)
        """Temperature, top-p, draws."""
        self._pages = Staged((pages + 1,), torch.int32, device)
        """The pages of all sequences, a shared page once for each; the last one is for padding."""
        self._step = torch.zeros(1, dtype=torch.long, device=device)
        self._tokens = torch.zeros(steps, rows, dtype=torch.long, device=device)
        self._logprobs = torch.zeros(steps, rows, device=device)

    def burst(
        self, rows: BurstStart, at: torch.Tensor | None = None, newest: torch.Tensor | None = None
    ) -> Burst:
        """Begin to give every sequence as many tokens as there are draws.

        The newest tokens of the rows `at` are still on the device.
        """
        count, steps = len(rows.ids), len(rows.uniform)
        size = rounded(count, self.max_rows)
        name = (size, rows.way)
        self.record(size, rows.way)
        self._load(rows, size)
        if at is not None and newest is not None:
            self._ints.there[0].index_copy_(0, at, newest)
        for _ in range(steps):
            if self._graphs:
                self._graphs.replay(name)
            else:
                self._extend(size, rows.way)
        return self._fetched(steps, count)

    def record(self, size: int, way: Way) -> None:
        """Record a step of this many rows, if steps are recorded."""
        if self._graphs:
            self._graphs.record((size, way), lambda: self._extend(size, way), self._blank)

    def _load(self, rows: BurstStart, size: int) -> None:
        count, pages = len(rows.ids), len(rows.pages)
        ints, floats, places = self._ints.host, self._floats.host, self._pages.host
        ints[:, :count] = rows.ids, rows.lengths, rows.begin
        # Padding reads and writes the place that no sequence owns: page 0.
        ints[:, count:size] = np.array([[0], [0], [pages]])
        places[:pages], places[pages] = rows.pages, 0
        floats[:, :size] = 1.0
        floats[0, :count], floats[1, :count] = rows.temperature, rows.top_p
        floats[2 : 2 + len(rows.uniform), :count] = rows.uniform
        self._ints.send()
        self._floats.send()
        self._pages.send(pages + 1)
        self._step.zero_()

    def _blank(self) -> None:
        for tensor in (self._ints.there, self._pages.there, self._step):
            tensor.zero_()

    def _extend(self, size: int, way: Way) -> None:
        """Give every row one more token."""
        ids, lengths, begin = self._ints.there[:, :size]
        with self.model.autocast:
            plan = TokenPlan(self.cache, self._pages.there, begin, lengths)
            logits = self.model.logits(self.model.hidden(ids, lengths, plan))
        floats = self._floats.there[:, :size]
        uniform = floats[2:].index_select(0, self._step)[0]
        tokens, logprobs = pick(logits, floats[0].float(), floats[1].float(), uniform, way)
        self._tokens[:, :size].index_copy_(0, self._step, tokens[None])
        self._logprobs[:, :size].index_copy_(0, self._step, logprobs[None])
        ids.copy_(tokens)
        lengths.add_(1)
        self._step.add_(1)

    def _fetched(self, steps: int, count: int) -> Burst:
        tokens, logprobs = self._tokens[:steps, :count], self._logprobs[:steps, :count]
        if not tokens.is_cuda:
            return Burst(tokens.clone(), logprobs.clone())
        done = torch.cuda.Event()
        burst = Burst(_begin_fetch(tokens), _begin_fetch(logprobs), done)
        done.record()
        return burst


def _begin_fetch(tensor: torch.Tensor) -> torch.Tensor:
    here = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return here.copy_(tensor, non_blocking=True)

"""Many tokens for many sequences without the host: a step that is recorded once and replayed.

What a step reads and writes stays where it is on the device, so a GPU replays it as one graph, and
a burst of steps needs the host only before its first and after its last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from recollect.policies.paged_attention import PagedCache, TokenPlan
from recollect.policies.pick import Way, pick
from recollect.train.model import LoadedModel


@dataclass(frozen=True)
class Rows:
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


@dataclass
class Decoder:
    """Extend the sequences of a cache."""

    model: LoadedModel
    cache: PagedCache
    max_rows: int
    max_steps: int
    page_room: int
    """Pages that all sequences together may have, a shared one counted every time."""
    _graphs: dict[tuple[int, Way], torch.cuda.CUDAGraph] = field(default_factory=dict)

    def __post_init__(self) -> None:
        device, rows, steps = self.cache.device, self.max_rows, self.max_steps
        if steps > self.cache.size:
            raise ValueError("a burst is no longer than a page: padding has one to itself")
        whole = partial(torch.zeros, dtype=torch.long, device=device)
        self._ids, self._lengths, self._begin = whole(rows), whole(rows), whole(rows)
        self._pages = torch.zeros(self.page_room, dtype=torch.int32, device=device)
        self._temperature = torch.ones(rows, device=device)
        self._top_p = torch.ones(rows, device=device)
        self._uniform = torch.zeros(steps, rows, dtype=torch.float64, device=device)
        self._step = whole(1)
        self._tokens = whole(steps, rows)
        self._logprobs = torch.zeros(steps, rows, device=device)

    def burst(
        self, rows: Rows, at: torch.Tensor | None = None, newest: torch.Tensor | None = None
    ) -> Burst:
        """Begin to give every sequence as many tokens as there are draws.

        The newest tokens of the rows `at` are still on the device.
        """
        count, steps = len(rows.ids), len(rows.uniform)
        size = self._rounded(count)
        if self.cache.device.type == "cuda":
            self._record(size, rows.way)
        self._load(rows, size)
        if at is not None and newest is not None:
            self._ids.index_copy_(0, at, newest)
        for _ in range(steps):
            if graph := self._graphs.get((size, rows.way)):
                graph.replay()
            else:
                self._extend(size, rows.way)
        return self._fetched(steps, count)

    def _rounded(self, count: int) -> int:
        """Round up to a number of rows that comes again: every one is a graph of its own."""
        step = max(8, 1 << max(0, count.bit_length() - 3))
        return min(self.max_rows, -(-count // step) * step)

    def _load(self, rows: Rows, size: int) -> None:
        missing = size - len(rows.ids)
        pad = lambda x, fill=0: np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)],  # noqa: E731
                                       constant_values=fill)  # fmt: skip
        # Padding reads and writes the place that no sequence owns: page 0, which `begin` points to.
        self._put(self._pages, np.append(rows.pages, 0))
        self._put(self._begin, pad(rows.begin, len(rows.pages)))
        self._put(self._ids, pad(rows.ids))
        self._put(self._lengths, pad(rows.lengths))
        self._put(self._temperature, pad(rows.temperature, 1))
        self._put(self._top_p, pad(rows.top_p, 1))
        for own, draws in zip(self._uniform, pad(rows.uniform), strict=False):
            self._put(own, draws)
        self._step.zero_()

    def _put(self, there: torch.Tensor, values: np.ndarray) -> None:
        source = torch.from_numpy(np.ascontiguousarray(values)).to(there.dtype)
        if there.is_cuda:
            source = source.pin_memory()
        there[: len(values)].copy_(source, non_blocking=True)

    def _record(self, size: int, way: Way) -> None:
        if (size, way) in self._graphs:
            return
        # Recorded where nothing is lost: on padding, after runs that let kernels be compiled.
        for tensor in (self._pages, self._begin, self._ids, self._lengths, self._step):
            tensor.zero_()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._extend(size, way)
                self._step.zero_()
                self._lengths.zero_()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        pool = next((g.pool() for g in self._graphs.values()), None)
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            self._extend(size, way)
        self._graphs[size, way] = graph

    def _extend(self, size: int, way: Way) -> None:
        """Give every row one more token."""
        ids, lengths = self._ids[:size], self._lengths[:size]
        with self.model.autocast:
            plan = TokenPlan(self.cache, self._pages, self._begin[:size], lengths)
            logits = self.model.logits(self.model.hidden(ids, lengths, plan))
        uniform = self._uniform[:, :size].index_select(0, self._step)[0]
        tokens, logprobs = pick(logits, self._temperature[:size], self._top_p[:size], uniform, way)
        self._tokens[:, :size].index_copy_(0, self._step, tokens[None])
        self._logprobs[:, :size].index_copy_(0, self._step, logprobs[None])
        ids.copy_(tokens)
        lengths.add_(1)
        self._step.add_(1)

    def _fetched(self, steps: int, count: int) -> Burst:
        found = (self._tokens[:steps, :count], self._logprobs[:steps, :count])
        if not self._tokens.is_cuda:
            return Burst(found[0].clone(), found[1].clone())
        tokens, logprobs = (
            torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)
            for x in found
        )
        done = torch.cuda.Event()
        done.record()
        return Burst(tokens, logprobs, done)

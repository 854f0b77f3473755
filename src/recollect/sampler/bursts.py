"""What a burst of steps begins with, how that gets to the device, and what the burst gave."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from recollect.sampler.graphs import Staged
from recollect.sampler.pick import Way


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
    common: np.ndarray | None
    """(B,): tokens in whole pages that each begins with as the one before it does, if asked for."""
    slots: np.ndarray
    """(B,): which sequences they are."""
    left: np.ndarray
    """(B,): tokens that each may still draw."""
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
    counts: torch.Tensor | None = None
    """(3, B), with drafts: tokens of each sequence, steps until it ended, tokens drafted for it."""
    started: torch.cuda.Event | None = None

    def ready(self) -> bool:
        """Tell whether they have arrived."""
        return self.done is None or self.done.query()

    @property
    def seconds(self) -> float:
        """How long a GPU worked on it; 0 if that was not measured."""
        if self.started is None or self.done is None:
            return 0.0
        return self.started.elapsed_time(self.done) / 1000


class BurstRows:
    """What the steps of a burst read on the device; one burst at a time."""

    def __init__(self, rows: int, draws: int, pages: int, slots: int, device: torch.device) -> None:
        self.slots = slots
        """Padding has the number after the last slot."""
        self.ints = Staged((5, rows), torch.long, device)
        """Newest token, tokens in the cache, where its pages begin, slot, tokens left."""
        self.floats = Staged((2 + draws, rows), torch.float64, device)
        """Temperature, top-p, draws."""
        self.pages = Staged((pages + 1,), torch.int32, device)
        """The pages of all sequences, a shared page once for each; the last one is for padding."""

    def load(
        self,
        rows: BurstStart,
        size: int,
        at: torch.Tensor | None = None,
        newest: torch.Tensor | None = None,
    ) -> None:
        """Begin to send rows, padded to a size; the newest tokens of the rows `at` are there."""
        count, pages = len(rows.ids), len(rows.pages)
        ints, floats, places = self.ints.host, self.floats.host, self.pages.host
        ints[:, :count] = rows.ids, rows.lengths, rows.begin, rows.slots, rows.left
        # Padding reads and writes the place that no sequence owns: page 0.
        ints[:, count:size] = np.array([[0], [0], [pages], [self.slots], [0]])
        places[:pages], places[pages] = rows.pages, 0
        floats[:, :size] = 1.0
        floats[0, :count], floats[1, :count] = rows.temperature, rows.top_p
        floats[2 : 2 + len(rows.uniform), :count] = rows.uniform
        self.ints.send()
        self.floats.send()
        self.pages.send(pages + 1)
        if at is not None and newest is not None:
            self.ints.there[0].index_copy_(0, at, newest)

    def blank(self) -> None:
        """Let all rows be padding."""
        self.ints.there.zero_()
        self.ints.there[3].fill_(self.slots)
        self.pages.there.zero_()


def started(device: torch.device) -> torch.cuda.Event | None:
    """Note when a GPU begins with what comes next."""
    if device.type != "cuda":
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def fetched(
    tokens: torch.Tensor,
    logprobs: torch.Tensor,
    began: torch.cuda.Event | None,
    counts: torch.Tensor | None = None,
) -> Burst:
    """Begin to fetch what a burst gave."""
    if began is None:
        kept = None if counts is None else counts.clone()
        return Burst(tokens.clone(), logprobs.clone(), counts=kept)
    done = torch.cuda.Event(enable_timing=True)
    kept = None if counts is None else _begin_fetch(counts)
    burst = Burst(_begin_fetch(tokens), _begin_fetch(logprobs), done, kept, began)
    done.record()
    return burst


def _begin_fetch(tensor: torch.Tensor) -> torch.Tensor:
    here = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return here.copy_(tensor, non_blocking=True)

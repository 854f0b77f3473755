"""Steps of a GPU that are recorded once and replayed: the host then starts them at no cost."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
import torch


class Graphs:
    """Recorded steps by name. A step reads and writes tensors that stay where they are."""

    def __init__(self) -> None:
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._side: torch.cuda.Stream | None = None
        """Steps are tried here, always on the same stream: each keeps memory to itself."""

    def record(self, name: Hashable, step: Callable[[], None], blank: Callable[[], None]) -> None:
        """Record a step under a name that is new; `blank` makes taking it harmless."""
        if name in self._graphs:
            return
        here = torch.cuda.current_stream()
        side = self._side = self._side or torch.cuda.Stream()
        side.wait_stream(here)
        try:
            with torch.cuda.stream(side):
                for _ in range(2):  # kernels are compiled and libraries make room for themselves
                    blank()
                    step()
                blank()
        finally:
            here.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        pool = next((known.pool() for known in self._graphs.values()), None)
        try:
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                step()
        finally:
            torch.cuda.set_stream(here)  # a recording that fails may leave its own
        self._graphs[name] = graph

    def replay(self, name: Hashable) -> None:
        """Start a recorded step."""
        self._graphs[name].replay()


class Staged:
    """A tensor on the device that is filled from the host's memory, one copy at a time."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.there = torch.zeros(shape, dtype=dtype, device=device)
        self._here = self.there
        self._sent: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._here = torch.zeros(shape, dtype=dtype, pin_memory=True)
            self._sent = torch.cuda.Event()

    @property
    def host(self) -> np.ndarray:
        """Write here, once what was written before is on the device ..."""
        if self._sent:
            self._sent.synchronize()
        return self._here.numpy()

    def send(self, count: int | None = None) -> None:
        """... then begin to copy it, or its first rows."""
        if self._sent:
            self.there[:count].copy_(self._here[:count], non_blocking=True)
            self._sent.record()


def rounded(count: int, most: int, least: int = 8) -> int:
    """Round up to a size that comes again, with at most a quarter of it unused."""
    step = max(least, 1 << max(0, count.bit_length() - 3))
    return min(most, -(-count // step) * step)

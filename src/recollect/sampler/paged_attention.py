"""Attention over a cache of pages: plans for prompts and for single tokens.

On a GPU kernels read the pages where they are; anywhere else plain torch does the same. Nothing in
a plan waits for a GPU, so that whatever it is part of can be recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from recollect.errors import UserError
from recollect.models.attention import Heads, masked_attention
from recollect.sampler.prefixes import Shared

LEAST_TILE = 16
"""New tokens of one sequence that a program of the kernel takes, if there are that many."""
ROOM = 160 << 10
"""Shared memory for the longer blocks, in bytes: an A100 and an H100 have as much."""
FEW = 128
"""Programs that are too few for a GPU: each then takes half as much."""


@dataclass(frozen=True)
class Program:
    """What one program of the kernel for runs takes at a time, and how it is compiled."""

    rows: int
    """Queries: new tokens of one sequence, times the heads that share keys."""
    block: int
    """Keys."""
    warps: int
    stages: int

    @classmethod
    def of(cls, width: int, dtype: torch.dtype, room: int = ROOM) -> Program:
        """Choose by the width and type of heads; `benchmarks/paged_kernel.py --sweep` compares.

        `room` is a GPU's shared memory for one program, in bytes.
        """
        if dtype == torch.float32:  # without tensor cores; larger ones take minutes to compile
            return cls(rows=32, block=16, warps=4, stages=1)
        if width > 128:
            return cls(rows=64, block=32, warps=4, stages=2)
        if width <= 64:
            return cls(rows=64, block=64, warps=4, stages=3)
        return cls(rows=128, block=128 if room >= ROOM else 64, warps=8, stages=2)

    def tile(self, times: int) -> int:
        """Return how many tokens a tile has, where this many heads share keys."""
        return max(LEAST_TILE, self.rows // times)

    def packed(self, times: int, tile: int, programs: int) -> int:
        """Return for how many of the heads that share keys a program reads them.

        `programs` is how many there are if each reads for all of these heads.
        """
        rows = self.rows // 2 if programs < FEW else self.rows
        groups = -(-times // max(1, rows // tile))
        return -(-times // groups)


class PagedCache:
    """Per layer one table (places, Hkv, D) for keys and one for values; a page is some places."""

    def __init__(self, layers: int, like: torch.Tensor, pages: int, size: int) -> None:
        self.size = size
        """Tokens of one page."""
        heads, _, width = like.shape
        shape = (layers, 2, pages * size, heads, width)
        try:
            # Zeros, not garbage: masked positions are still multiplied by probability zero.
            self.table = torch.zeros(shape, dtype=like.dtype, device=like.device)
        except torch.OutOfMemoryError as error:
            needed = 2 * layers * pages * size * like.nbytes / 2**30
            raise UserError(
                f"the GPU has no room for {needed:.1f} GiB of the sampler's keys and values",
                "set a smaller cache: --model.cache-gib for training, --cache-gib elsewhere",
            ) from error

    @property
    def device(self) -> torch.device:
        return self.table.device

    def store(self, layer: int, into: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        """Write what N tokens are looked up by (Hkv, N, D) to their places (N,)."""
        for table, new in zip(self.table[layer], (key, value), strict=True):
            table.index_copy_(0, into, new.transpose(0, 1).to(table.dtype))

    def keys(self, layer: int) -> torch.Tensor:
        """Return (places, Hkv, D)."""
        return self.table[layer, 0]

    def values(self, layer: int) -> torch.Tensor:
        """Return (places, Hkv, D)."""
        return self.table[layer, 1]


def attend_run(
    heads: Heads, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    """Let the last n tokens (n, Hq, D) of a sequence (L, Hkv, D) see it up to themselves."""
    at = torch.arange(len(keys), device=keys.device)
    own = at[len(keys) - len(query) :, None]
    seen = at <= own
    if heads.window:
        seen &= at > own - heads.window
    q, k, v = (x.transpose(0, 1)[None] for x in (query, keys, values))
    return masked_attention(heads, q, k, v, seen[None, None])[0].transpose(0, 1)


@dataclass
class PromptPlan:
    """Runs of new tokens, each at the end of a sequence whose other tokens are in the cache."""

    cache: PagedCache
    into: torch.Tensor
    """(N,): the places of the new tokens, run after run; padding may follow."""
    tiles: torch.Tensor
    """(2, T): runs cut into tiles, each with its run and its first token; run -1 is empty."""
    runs: torch.Tensor
    """(3, R): where each run's new tokens end, how long its sequence is with them, and where its
    pages begin."""
    pages: torch.Tensor
    """int32: the places of pages, sequence after sequence."""
    tile: int
    """Tokens of a tile."""

    def attend(
        self, heads: Heads, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """Store the new keys and values, then let every run see its past and itself."""
        self.cache.store(heads.layer, self.into, key, value)
        return self.look(heads, query.transpose(0, 1).to(self.cache.table.dtype))

    def look(self, heads: Heads, query: torch.Tensor) -> torch.Tensor:
        """Let queries (N, Hq, D) see what is stored, their own keys and values too."""
        keys, values = self.cache.keys(heads.layer), self.cache.values(heads.layer)
        if keys.is_cuda:
            from recollect.sampler.prompt_kernels import attend_runs

            return attend_runs(
                heads,
                query,
                keys,
                values,
                self.pages,
                self.tiles,
                self.runs,
                self.cache.size,
                self.tile,
            )
        out = torch.zeros_like(query)
        begin = 0
        for end, length, first in self.runs[:, : int(self.tiles[0].max()) + 1].T.tolist():
            at = torch.arange(length)
            place = self.pages[first + at // self.cache.size].long() * self.cache.size
            place += at % self.cache.size
            out[begin:end] = attend_run(heads, query[begin:end], keys[place], values[place])
            begin = end
        return out


@dataclass
class TokenPlan:
    """One new token for each of B sequences."""

    cache: PagedCache
    pages: torch.Tensor
    """int32: the places of pages, sequence after sequence."""
    begin: torch.Tensor
    """(B,) int64: where each sequence's pages begin among them."""
    lengths: torch.Tensor
    """(B,) int64: tokens in the cache before this one."""
    shared: Shared | None = None
    """What a GPU reads once for several sequences."""
    into: torch.Tensor = field(init=False)
    """(B,) int64: the places of the new tokens."""

    def __post_init__(self) -> None:
        size = self.cache.size
        page = self.pages[self.begin + self.lengths // size].long()
        self.into = page * size + self.lengths % size

    def attend(
        self, heads: Heads, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """Append each token to its sequence, then attend over all of it."""
        self.cache.store(heads.layer, self.into, key, value)
        return self.look(heads, query.transpose(0, 1).to(self.cache.table.dtype))

    def look(self, heads: Heads, query: torch.Tensor) -> torch.Tensor:
        """Let queries (B, Hq, D) see what is stored, their own keys and values too."""
        keys, values = self.cache.keys(heads.layer), self.cache.values(heads.layer)
        if keys.is_cuda:
            from recollect.sampler.paged_kernels import attend_tokens

            return attend_tokens(
                heads,
                query,
                keys,
                values,
                self.pages,
                self.begin,
                self.lengths,
                self.cache.size,
                self.shared,
            )
        size = self.cache.size
        longest = int(self.lengths.max()) + 1
        at_L = torch.arange(longest, device=query.device)
        index = self.begin[:, None] + at_L // size
        place = self.pages[index.clamp(max=len(self.pages) - 1)].long() * size + at_L % size
        mask = at_L <= self.lengths[:, None]
        if heads.window:
            mask &= at_L > self.lengths[:, None] - heads.window
        place = torch.where(mask, place, 0)
        keys, values = (table[place].transpose(1, 2) for table in (keys, values))  # (B, Hkv, L, D)
        return masked_attention(heads, query[:, :, None], keys, values, mask[:, None, None])[
            :, :, 0
        ]

"""Attention over a cache of pages: plans for prompts and for single tokens.

On a GPU prompts go through FlashAttention, on a copy of the keys that they see, and tokens through
a kernel that reads pages where they are. Everywhere else, and for what these kernels do not know,
plain torch does the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from recollect.train.attention import Heads, masked_attention


class PagedCache:
    """Per layer one table (places, Hkv, D) for keys and one for values; a page is some places."""

    def __init__(self, layers: int, like: torch.Tensor, pages: int, size: int) -> None:
        self.size = size
        """Tokens of one page."""
        heads, _, width = like.shape
        shape = (layers, 2, pages * size, heads, width)
        # Zeros, not garbage: masked positions are still multiplied by probability zero.
        self.table = torch.zeros(shape, dtype=like.dtype, device=like.device)

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


@dataclass
class PromptPlan:
    """Runs of new tokens, each at the end of a sequence whose other tokens are in the cache."""

    cache: PagedCache
    into: np.ndarray
    """(N,): the places of the new tokens, run after run."""
    seen: np.ndarray
    """(M,): the places of all tokens of every run's sequence, the new ones included."""
    sizes_q: np.ndarray
    """(R,): new tokens of every run ..."""
    sizes_k: np.ndarray
    """... and all tokens of its sequence."""

    def __post_init__(self) -> None:
        device = self.cache.device
        self._into = torch.from_numpy(self.into).to(device)
        self._seen = torch.from_numpy(self.seen).to(device)

    def attend(
        self, heads: Heads, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """Store the new keys and values, then let every run see its past and itself."""
        self.cache.store(heads.layer, self._into, key, value)
        keys = self.cache.keys(heads.layer).index_select(0, self._seen)
        values = self.cache.values(heads.layer).index_select(0, self._seen)
        query = query.transpose(0, 1).to(keys.dtype)  # (N, Hq, D)
        hidden = heads.window is not None and heads.window < self.sizes_k.max()
        if keys.is_cuda and keys.dtype.itemsize == 2 and not hidden and heads.softcap is None:
            out, *_ = torch.ops.aten._flash_attention_forward(
                query.contiguous(), keys, values, *self._offsets, int(self.sizes_q.max()),
                int(self.sizes_k.max()), 0.0, True, False, scale=heads.scaling,
            )  # fmt: skip
            return out
        return torch.cat(
            [
                self._attend_one(heads, *run)
                for run in zip(
                    query.split(self.sizes_q.tolist()),
                    keys.split(self.sizes_k.tolist()),
                    values.split(self.sizes_k.tolist()),
                    strict=True,
                )
            ]
        )

    @cached_property
    def _offsets(self) -> tuple[torch.Tensor, torch.Tensor]:
        both = (np.concatenate([[0], np.cumsum(n)]) for n in (self.sizes_q, self.sizes_k))
        q, k = (torch.from_numpy(x.astype(np.int32)).to(self.cache.device) for x in both)
        return q, k

    @staticmethod
    def _attend_one(
        heads: Heads, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        device = query.device
        at_S = torch.arange(len(key) - len(query), len(key), device=device)[:, None]
        at_L = torch.arange(len(key), device=device)
        mask = at_L <= at_S
        if heads.window:
            mask &= at_L > at_S - heads.window
        rows = (x.transpose(0, 1)[None] for x in (query, key, value))
        return masked_attention(heads, *rows, mask[None, None])[0].transpose(0, 1)


@dataclass
class TokenPlan:
    """One new token for each of B sequences. Nothing here waits for the device."""

    cache: PagedCache
    pages: torch.Tensor
    """int32: the places of pages, sequence after sequence."""
    begin: torch.Tensor
    """(B,) int64: where each sequence's pages begin among them."""
    lengths: torch.Tensor
    """(B,) int64: tokens in the cache before this one."""

    def __post_init__(self) -> None:
        size = self.cache.size
        page = self.pages[self.begin + self.lengths // size].long()
        self._into = page * size + self.lengths % size

    def attend(
        self, heads: Heads, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """Append each token to its sequence, then attend over all of it."""
        self.cache.store(heads.layer, self._into, key, value)
        keys, values = self.cache.keys(heads.layer), self.cache.values(heads.layer)
        query = query.transpose(0, 1).to(keys.dtype)  # (B, Hq, D)
        if keys.is_cuda:
            from recollect.policies.paged_kernel import paged_attention

            return paged_attention(
                heads, query, keys, values, self.pages, self.begin, self.lengths, self.cache.size
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
        found = (table[place].transpose(1, 2) for table in (keys, values))  # (B, Hkv, L, D)
        out = masked_attention(heads, query[:, :, None], *found, mask[:, None, None])
        return out[:, :, 0]

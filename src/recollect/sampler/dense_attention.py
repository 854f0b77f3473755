"""The sampler's attention: plans that fill the cache with prompts and read it token by token."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from recollect.models.attention import Heads, masked_attention
from recollect.sampler.dense_cache import Block, Cache, PromptRun


@dataclass
class PrefillPlan:
    """Compute the keys of several runs, copy what other slots already hold, and attend."""

    cache: Cache
    runs: list[PromptRun]
    copies: torch.Tensor
    """(4, C): target slot, target place, source slot, source place; all copied after all writes."""
    batches: list[tuple[int, int]] = field(init=False)
    """Runs that attend together: neighbours in neighbouring slots and of similar size."""

    def __post_init__(self) -> None:
        device = self.cache.device
        private = [r for r in self.runs if r.slot >= 0]
        steps = [torch.arange(r.start, r.start + r.size) for r in private]
        slots = [torch.full((r.size,), r.slot) for r in private]
        self._slots = torch.cat(slots).to(device) if private else None
        self._places = torch.cat(steps).to(device) if private else None
        owned = np.concatenate([np.full(r.size, r.slot >= 0) for r in self.runs])
        self._private = torch.from_numpy(np.flatnonzero(owned)).to(device)
        self._offsets = np.concatenate([[0], np.cumsum([r.size for r in self.runs])])
        self.batches = self._batch()
        self._masks: dict[tuple[int, int | None], torch.Tensor] = {}

    def attend(
        self, heads: Heads, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """Store the new keys and values, then let every run see its past and itself."""
        self._store(heads.layer, key, value)
        out = query.new_empty(query.shape[1], query.shape[0], value.shape[-1])
        for number, (first, last) in enumerate(self.batches):
            if last - first == 1:
                self._attend_one(heads, query, out, first)
            else:
                self._attend_batch(heads, query, out, number, first, last)
        return out

    def _store(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        tables = ((self.cache.keys[layer], key), (self.cache.values[layer], value))
        for table, new in tables:
            if self._slots is not None:
                table[self._slots, :, self._places] = (
                    new[:, self._private].transpose(0, 1).to(table)
                )
            if self.copies.shape[1]:
                to_slot, to_place, slot, place = self.copies
                table[to_slot, :, to_place] = table[slot, :, place]
        for i, run in enumerate(self.runs):
            if run.slot < 0:
                self._store_block(layer, run, slice(*self._offsets[i : i + 2]), key, value)

    @staticmethod
    def _store_block(
        layer: int, run: PromptRun, tokens: slice, key: torch.Tensor, value: torch.Tensor
    ) -> None:
        assert run.block is not None
        keys, values = run.block.keys[layer], run.block.values[layer]
        if run.copied:
            keys[:, : run.start] = run.copied.keys[layer][:, : run.start]
            values[:, : run.start] = run.copied.values[layer][:, : run.start]
        keys[:, run.start : run.start + run.size] = key[:, tokens]
        values[:, run.start : run.start + run.size] = value[:, tokens]

    def _attend_one(self, heads: Heads, query: torch.Tensor, out: torch.Tensor, i: int) -> None:
        run, (a, b) = self.runs[i], self._offsets[i : i + 2]
        keys, values = self._seen(heads.layer, run)
        total = keys.shape[1]
        mask = None
        if total > run.size or (heads.window and total > heads.window):
            mask = self._mask(i, 1, [total - run.size], [run.size], total, heads.window)
        result = masked_attention(heads, query[None, :, a:b], keys[None], values[None], mask)
        out[a:b] = result[0].transpose(0, 1)

    def _seen(self, layer: int, run: PromptRun) -> tuple[torch.Tensor, torch.Tensor]:
        """Return all keys and values of a run's sequence so far."""
        end = run.start + run.size
        if run.slot < 0:
            assert run.block is not None
            return run.block.keys[layer][:, :end], run.block.values[layer][:, :end]
        keys = self.cache.keys[layer][run.slot, :, :end]
        values = self.cache.values[layer][run.slot, :, :end]
        if run.block is None:
            return keys, values
        return (
            torch.cat([run.block.keys[layer][:, : run.base], keys], 1),
            torch.cat([run.block.values[layer][:, : run.base], values], 1),
        )

    def _attend_batch(
        self,
        heads: Heads,
        query: torch.Tensor,
        out: torch.Tensor,
        number: int,
        first: int,
        last: int,
    ) -> None:
        runs = self.runs[first:last]
        size = max(r.size for r in runs)
        length = max(r.start + r.size for r in runs)
        index = self._padded_index(first, last, size)
        slots = slice(runs[0].slot, runs[-1].slot + 1)
        keys = self.cache.keys[heads.layer][slots, :, :length]
        values = self.cache.values[heads.layer][slots, :, :length]
        starts, sizes = [r.start for r in runs], [r.size for r in runs]
        mask = self._mask(-1 - number, len(runs), starts, sizes, length, heads.window)
        padded = query[:, index].transpose(0, 1)  # (R, Hq, size, D)
        result = masked_attention(heads, padded, keys, values, mask).transpose(1, 2)
        kept = self._kept(sizes, size)
        a, b = self._offsets[first], self._offsets[last]
        out[a:b] = result.reshape(len(runs) * size, *result.shape[2:])[kept]

    def _padded_index(self, first: int, last: int, size: int) -> torch.Tensor:
        offsets = self._offsets[first:last, None]
        index = np.minimum(offsets + np.arange(size), self._offsets[first + 1 : last + 1, None] - 1)
        return torch.from_numpy(index).to(self.cache.device)

    def _kept(self, sizes: list[int], size: int) -> torch.Tensor:
        inside = np.arange(size) < np.array(sizes)[:, None]
        return torch.from_numpy(np.flatnonzero(inside)).to(self.cache.device)

    def _mask(
        self,
        name: int,
        rows: int,
        starts: list[int],
        sizes: list[int],
        length: int,
        window: int | None,
    ) -> torch.Tensor:
        """Build once per pass (R, 1, S, L): a query sees what comes no later than itself."""
        if (name, window) not in self._masks:
            at = np.array(starts)[:, None] + np.arange(max(sizes))
            at = at[:, None, :, None]
            keys = np.arange(length)
            seen = keys <= at
            if window:
                seen &= keys > at - window
            self._masks[name, window] = torch.from_numpy(seen).to(self.cache.device)
        return self._masks[name, window]

    def _batch(self) -> list[tuple[int, int]]:
        """Put neighbouring slots into one batch while padding costs less than another call."""
        batches: list[tuple[int, int]] = []
        first = size = length = real = 0
        for i, run in enumerate(self.runs):
            end = run.start + run.size
            size, length, real = max(size, run.size), max(length, end), real + run.size * end
            padded = (i + 1 - first) * size * length
            joins = i > first and run.slot == self.runs[i - 1].slot + 1
            joins &= run.slot >= 0 and not run.base and not self.runs[i - 1].base
            if not joins or padded > 1.5 * real + 4096 or padded > 1 << 24:
                if i > first:
                    batches.append((first, i))
                first, size, length, real = i, run.size, end, run.size * end
        batches.append((first, len(self.runs)))
        return batches


@dataclass
class DecodePlan:
    """One new token for each of the running sequences, slots 0..B-1."""

    cache: Cache
    lengths: torch.Tensor
    """(B,): tokens in each slot before this one."""
    longest: int
    """The largest of `lengths`."""
    bases: torch.Tensor
    """(B,): where each slot begins in its sequence."""
    groups: list[tuple[Block, int, torch.Tensor]]
    """(block, tokens of it that are read, the rows that read it)."""

    def __post_init__(self) -> None:
        device = self.cache.device
        self._rows = torch.arange(len(self.lengths), device=device)
        keys = torch.arange(self.longest + 1, device=device)
        self._hidden = keys > self.lengths[:, None]  # (B, L)
        self._windows: dict[int, torch.Tensor] = {}

    def attend(
        self, heads: Heads, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """Append each token to its slot, then attend over slot and block together."""
        keys, values = self.cache.keys[heads.layer], self.cache.values[heads.layer]
        keys[self._rows, :, self.lengths] = key.transpose(0, 1).to(keys)
        values[self._rows, :, self.lengths] = value.transpose(0, 1).to(values)
        size, end = len(self._rows), self.longest + 1
        kv_heads = key.shape[0]
        # (B, Hkv, Hq per Hkv, D)
        query = query.transpose(0, 1).reshape(size, kv_heads, -1, query.shape[-1])
        keys, values = keys[:size, :, :end], values[:size, :, :end]
        hidden = self._hidden_in(heads.window)[:, None, None]
        if self.groups or query.is_cuda or heads.softcap:
            scores = _scores(heads, query, keys).masked_fill_(hidden, float("-inf"))
            out = self._weighed(heads, query, scores, values)
        else:  # as many products of a row as there are sequences and heads: one kernel does them
            out = masked_attention(heads, query.to(keys), keys, values, ~hidden)
        return out.reshape(size, -1, value.shape[-1])

    def _weighed(
        self, heads: Heads, query: torch.Tensor, scores: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """Merge what a sequence sees in its block, if it has one, with what is in its slot."""
        if not self.groups:
            return scores.softmax(-1).to(values.dtype) @ values
        total = scores.logsumexp(-1, keepdim=True)
        out = (scores - total).exp().to(values.dtype) @ values
        for block, base, rows in self.groups:
            block_out, block_total = self._see_block(heads, query, block, base, rows)
            both = torch.logaddexp(total[rows], block_total)
            out[rows] = (
                out[rows] * (total[rows] - both).exp() + block_out * (block_total - both).exp()
            ).to(out.dtype)
        return out

    def _see_block(
        self, heads: Heads, query: torch.Tensor, block: Block, base: int, rows: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        size, kv_heads, times, width = query[rows].shape
        # All siblings read the block in one product: (Hkv, B' * times, D) against (Hkv, P, D).
        together = query[rows].transpose(0, 1).reshape(kv_heads, size * times, width)
        scores = _scores(heads, together, block.keys[heads.layer][:, :base])
        if heads.window:
            at = (self.bases + self.lengths)[rows].repeat_interleave(times)
            gone = torch.arange(base, device=scores.device) <= at[:, None] - heads.window
            scores.masked_fill_(gone, float("-inf"))
        total = scores.logsumexp(-1, keepdim=True)
        weights = torch.nan_to_num((scores - total).exp())  # a window may hide the whole block
        out = weights.to(query.dtype) @ block.values[heads.layer][:, :base]
        unfold = lambda x: x.reshape(kv_heads, size, times, -1).transpose(0, 1)  # noqa: E731
        return unfold(out), unfold(total)

    def _hidden_in(self, window: int | None) -> torch.Tensor:
        if not window:
            return self._hidden
        if window not in self._windows:
            keys = torch.arange(self.longest + 1, device=self.cache.device)
            gone = keys <= self.lengths[:, None] - window
            self._windows[window] = self._hidden | gone
        return self._windows[window]


def _scores(heads: Heads, query: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    scores = (query @ keys.transpose(-1, -2)).float() * heads.scaling
    if heads.softcap:
        scores = heads.softcap * torch.tanh(scores / heads.softcap)
    return scores

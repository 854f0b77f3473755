"""The sampler's cache of keys and values.

Every running sequence has a slot, a row of one table per layer; slots 0..n-1 are the running ones,
so decoding reads one dense slice. Long prefixes that several sequences share live once, in blocks:
a sequence then starts at its block's end and its slot holds only what follows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from recollect.models.attention import Heads
from recollect.models.model import LoadedModel


@dataclass(eq=False)
class Block:
    """A prompt prefix whose keys and values several sequences read."""

    ids: np.ndarray
    keys: list[torch.Tensor]
    """Per layer (Hkv, P, D)."""
    values: list[torch.Tensor]
    users: int = 0
    used_at: int = 0
    """The sampler's step count when it was last wanted: the oldest idle block goes first."""


class Cache:
    """Per layer one table (slots, Hkv, length, D) for keys and one for values."""

    def __init__(
        self, shapes: list[tuple[int, int, int]], dtype: torch.dtype, device: torch.device
    ):
        self.shapes = shapes
        """Per layer: key heads, key width, value width."""
        self.dtype, self.device = dtype, device
        self.slots = self.length = 0
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []

    @classmethod
    def of(cls, model: LoadedModel) -> Cache:
        """Make an empty cache for a model's keys and values."""
        keys = keys_of(model)
        shapes = [(key.shape[0], key.shape[2], value.shape[2]) for key, value in keys]
        return cls(shapes, keys[0][0].dtype, model.device)

    @property
    def bytes_per_token(self) -> int:
        return sum(h * (dk + dv) for h, dk, dv in self.shapes) * self.dtype.itemsize

    def reserve(self, slots: int, length: int, used: int, limit: int) -> None:
        """Make room for `slots` sequences of `length` tokens, keeping the first `used` slots.

        More than `limit` tokens in all are held only if what is asked for is more.
        """
        fits = slots <= self.slots and length <= self.length
        if fits and self.slots * self.length <= limit:
            return
        # Room to spare keeps copying rare; only what outgrew its size gets some.
        spare_slots = self.slots if slots <= self.slots else max(slots, 2 * self.slots)
        spare_length = self.length if length <= self.length else length + length // 4
        if spare_slots * spare_length > limit:
            spare_slots, spare_length = min(spare_slots, limit // length), length
        slots, length = max(slots, spare_slots), spare_length
        kept = min(length, self.length)
        self.slots, self.length = slots, length
        if not self.keys:
            self.keys = [torch.empty(0)] * len(self.shapes)
            self.values = [torch.empty(0)] * len(self.shapes)
        for layer, (heads, width, value_width) in enumerate(self.shapes):
            for tables, size in ((self.keys, width), (self.values, value_width)):
                # Zeros, not garbage: masked positions are still multiplied by probability zero.
                table = torch.zeros(
                    slots, heads, length, size, dtype=self.dtype, device=self.device
                )
                if used:
                    table[:used, :, :kept] = tables[layer][:used, :, :kept]
                tables[layer] = table  # the old one goes now, so that only one is held twice

    def clear(self) -> None:
        """Give all memory back."""
        self.slots = self.length = 0
        self.keys, self.values = [], []

    def move(self, sources: list[int], targets: list[int], length: int) -> None:
        """Copy slots onto others, so that the running ones stay dense."""
        for table in (*self.keys, *self.values):
            table[targets, :, :length] = table[sources, :, :length]

    def block(self, ids: np.ndarray) -> Block:
        """Make an empty block for a prefix."""
        size = len(ids)
        make = lambda h, d: torch.zeros(h, size, d, dtype=self.dtype, device=self.device)  # noqa: E731
        return Block(
            ids,
            [make(h, dk) for h, dk, _ in self.shapes],
            [make(h, dv) for h, _, dv in self.shapes],
        )


@dataclass(frozen=True)
class PromptRun:
    """Consecutive prompt tokens of one sequence (or block) computed in one pass."""

    slot: int
    """-1 if the tokens fill the block itself."""
    start: int
    """The place of the run's first token in the slot (or block)."""
    size: int
    block: Block | None = None
    base: int = 0
    """How many tokens of the block the sequence reads before its slot begins."""
    copied: Block | None = None
    """A new block takes its first `start` tokens from this older one."""


@torch.inference_mode()
def keys_of(model: LoadedModel) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Ask the model itself for the keys and values (Hkv, 1, D) of one token in every layer."""
    found: list[tuple[torch.Tensor, torch.Tensor]] = []

    class Probe:
        def attend(
            self, heads: Heads, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
        ) -> torch.Tensor:
            found.append((key, value))
            return query.new_zeros(query.shape[1], query.shape[0], value.shape[2])

    one = torch.zeros(1, dtype=torch.long, device=model.device)
    with model.autocast:
        model.hidden(one, one, Probe())
    return found

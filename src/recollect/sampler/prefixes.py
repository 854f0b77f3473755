"""Running sequences that begin with the same pages, whose keys a GPU then reads once for several.

Siblings run side by side. Those whose prompts have much in common are cut into tiles: one program
of the kernel reads what all sequences of a tile begin with, and the rest is read for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from recollect.sampler.graphs import Staged

QUERIES = 64
"""Queries that a program takes together: those of all sequences of a tile for one head's keys."""
BLOCK = 64
"""Tokens that a program reads at a time; what a tile shares is a multiple of it."""
FEWEST = 4
"""A tile has room for at least this many sequences, so there is at most one for every two."""
WORTH = 0.25
"""The share of all keys that has to be read less often."""
Tiles = tuple[np.ndarray, np.ndarray]
"""(B,) and (2, T), as in `Shared`."""


@dataclass(frozen=True)
class Shared:
    """What rows share, on the device."""

    tokens: torch.Tensor
    """(B,) int32: tokens at the beginning of each row that its tile reads; 0 without a tile."""
    tiles: torch.Tensor
    """(2, T) int32: the first row of each tile, and how many it has; 0 for none."""
    most: int
    """Rows of a tile."""


class SharedRows:
    """Where a burst's tiles are put, so that its recorded steps find them."""

    def __init__(self, rows: int, queries: int, device: torch.device) -> None:
        self.most = QUERIES // queries
        """Rows of a tile, where a row has this many queries for one head's keys."""
        self._staged = Staged((3, rows), torch.int32, device)

    def find(self, common: np.ndarray, lengths: np.ndarray) -> Tiles | None:
        """Return tiles, if they are worth it."""
        if self.most < FEWEST:
            return None
        tokens, tiles = tiles_of(common, lengths, self.most)
        saved = ((tiles[1] - 1) * tokens[tiles[0]]).sum()
        return (tokens, tiles) if saved > WORTH * lengths.sum() else None

    def load(self, found: Tiles) -> None:
        """Begin to send tiles."""
        host, (tokens, tiles) = self._staged.host, found
        host[:] = 0  # also for rows that are padding
        host[0, : len(tokens)], host[1:, : tiles.shape[1]] = tokens, tiles
        self._staged.send()

    def of(self, size: int) -> Shared:
        """Return what the first rows share."""
        there = self._staged.there
        return Shared(there[0, :size], there[1:, : size // 2], self.most)

    def blank(self) -> None:
        """Let nothing be shared."""
        self._staged.there.zero_()


def head_shape(config: Any) -> tuple[int, int, int]:
    """Return a network's heads: those that ask, those that are asked, and their width."""
    text = config.get_text_config()
    asking = text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // asking
    return asking, getattr(text, "num_key_value_heads", None) or asking, width


def tiles_of(common: np.ndarray, lengths: np.ndarray, most: int) -> Tiles:
    """Cut rows into tiles.

    `common` is how many tokens each row begins with as the row before it does. Neighbours stay
    together unless one of them has more than twice as much in common with another.
    """
    after = np.append(common[1:], 0)
    best = np.maximum(common, after)
    apart = np.ones(len(common), dtype=bool)
    apart[1:] = 2 * common[1:] < np.maximum(best[1:], best[:-1])
    first = np.flatnonzero(apart)
    sizes = np.diff(first, append=len(common))
    alike = np.where(apart, lengths, np.minimum(common, lengths))
    least = np.where(sizes > 1, np.minimum.reduceat(alike, first), 0) // BLOCK * BLOCK
    cuts = np.where(least > 0, -(-sizes // most), 0)
    number = np.arange(cuts.sum()) - np.repeat(np.cumsum(cuts) - cuts, cuts)
    begin = np.repeat(first, cuts) + number * most
    rows = np.minimum(most, np.repeat(first + sizes, cuts) - begin)
    return np.repeat(least, sizes), np.stack([begin, rows])

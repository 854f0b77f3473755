"""The tokens of running sequences on the device, and what may follow their last ones.

A reply of a memory agent mostly repeats: the text it read, the memory it had, the tags of other
replies. So what followed an earlier occurrence of the last tokens is a good guess at the next ones.
Knows nothing of models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from recollect.models.transfer import put

LOOKED = 6
"""Last tokens that are compared with earlier ones: the longest repetition wins."""
LEAST = 2
"""Last tokens that must occur earlier."""
NO_TOKEN = -1


class History:
    """For each slot the tokens of its sequence, from the left; the last row is for padding."""

    def __init__(self, slots: int, width: int, ahead: int, device: torch.device) -> None:
        self.width = width
        """Tokens of a sequence that are kept at most; of a longer prompt these are the last."""
        self.ahead = ahead
        """Tokens that a guess has at most."""
        # The columns on the right stay empty: a guess that begins in the last column ends there.
        shape = (slots + 1, width + ahead + 1)
        self.table = torch.full(shape, NO_TOKEN, dtype=torch.int32, device=device)
        self.filled = torch.zeros(slots + 1, dtype=torch.long, device=device)
        """Tokens of each sequence; one with more than the width gets no guesses any more."""

    def enter(
        self,
        slots: np.ndarray,
        prompts: Sequence[np.ndarray],
        limits: Sequence[int],
        first: torch.Tensor,
    ) -> None:
        """Take sequences in: what was read of each, and the token that follows, on the device.

        A long prompt leaves room for a reply up to its limit, or for as much as is kept of it.
        """
        most = [max(self.width // 2, self.width - limit) for limit in limits]
        kept = [ids[-count:] for ids, count in zip(prompts, most, strict=True)]
        sizes = np.array([len(ids) for ids in kept])
        begin = slots * self.table.shape[1] - (np.cumsum(sizes) - sizes)
        flat = np.repeat(begin, sizes) + np.arange(sizes.sum())
        device = self.table.device
        ids = put(np.concatenate(kept).astype(np.int32), device)
        there = put(slots, device)
        self.table.index_fill_(0, there, NO_TOKEN)
        self.table.view(-1).index_copy_(0, put(flat, device), ids)
        self.filled.index_copy_(0, there, put(sizes, device))
        self.append(there, first[:, None], torch.ones_like(there))

    def append(self, slots_B: torch.Tensor, tokens_BW: torch.Tensor, count_B: torch.Tensor) -> None:
        """Add the first `count` of some tokens to each of some sequences."""
        at_W = torch.arange(tokens_BW.shape[1], device=slots_B.device)
        filled_B = self.filled.index_select(0, slots_B)
        column_BW = filled_B[:, None] + at_W
        kept_BW = (at_W < count_B[:, None]) & (column_BW < self.width)
        # What does not count goes to the row of padding, which is never read.
        width = self.table.shape[1]
        nowhere = self.table.numel() - width
        flat_BW = torch.where(kept_BW, slots_B[:, None] * width + column_BW, nowhere)
        self.table.view(-1).index_copy_(0, flat_BW.view(-1), tokens_BW.int().reshape(-1))
        self.filled.index_copy_(0, slots_B, filled_B + count_B)

    def guess(
        self, slots_B: torch.Tensor, others: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return (B, ahead) tokens that may follow, how many are meant, how many last ones agree.

        `others` are tokens of other sequences, searched as well; they begin and end with no token.
        """
        own_BC = self.table.index_select(0, slots_B)
        filled_B = self.filled.index_select(0, slots_B)
        back_L = torch.arange(1, LOOKED + 1, device=slots_B.device)
        at_BL = filled_B[:, None] - back_L
        last_BL = own_BC.gather(1, at_BL.clamp(0, own_BC.shape[1] - 1))
        last_BL = torch.where(at_BL >= 0, last_BL, NO_TOKEN - 1)
        around_BC = torch.cat([others.expand(len(slots_B), -1), own_BC], 1)
        next_BK, count_B, agree_B = follow(around_BC, last_BL, self.ahead)
        known_B = filled_B <= self.width
        return next_BK, torch.where(known_B, count_B, 0), torch.where(known_B, agree_B, 0)


def follow(
    context_BC: torch.Tensor, last_BL: torch.Tensor, ahead: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Find where the last tokens (newest first) occur in a context, and what follows there.

    The longest agreement counts, then a place that `ahead` tokens follow, then the latest.
    """
    size, looked = context_BC.shape[1], last_BL.shape[1]
    first, end = looked - 1, size - ahead  # columns where the newest token is looked for
    alike_BC = context_BC[:, first:end] == last_BL[:, :1]
    agree_BC = alike_BC.int()
    for back in range(1, looked):
        alike_BC = alike_BC & (context_BC[:, first - back : end - back] == last_BL[:, back, None])
        agree_BC = agree_BC + alike_BC
    followed_BC = context_BC[:, first + 1 : end + 1] != NO_TOKEN
    far_BC = context_BC[:, first + ahead : end + ahead] != NO_TOKEN
    rank_BC = torch.where(followed_BC & (agree_BC >= LEAST), 2 * agree_BC + far_BC, 0) * size
    rank_BC = rank_BC + torch.arange(end - first, dtype=torch.int32, device=context_BC.device)
    best_B, column_B = rank_BC.max(1)
    agree_B = best_B // (2 * size)
    after_BK = column_B[:, None] + torch.arange(looked, looked + ahead, device=context_BC.device)
    next_BK = context_BC.gather(1, after_BK)
    count_B = (next_BK != NO_TOKEN).long().cumprod(1).sum(1)
    return next_BK, torch.where(agree_B > 0, count_B, 0), agree_B

"""Pick tokens from logits without waiting for the device; `draw` decides the same on the host."""

from __future__ import annotations

from typing import Literal

import torch

Way = Literal["greedy", "drawn", "mixed"]
"""All take the most likely token, all are drawn from whole distributions, or anything."""

BLOCK = 256
"""Tokens whose probabilities are added up before any is looked at."""


def pick(
    logits_BV: torch.Tensor,
    temperature_B: torch.Tensor,
    top_p_B: torch.Tensor,
    uniform_B: torch.Tensor,
    way: Way,
    quick: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a token per row, and its logprob under softmax(logits / temperature).

    `quick` lets kernels of our own pick on a GPU, which make no probabilities of all tokens; there
    are none for the mixed way.
    """
    if quick and logits_BV.is_cuda and way != "mixed":
        from recollect.sampler.pick_kernels import quick_pick

        return quick_pick(logits_BV, temperature_B, uniform_B, way == "drawn")
    logits_BV, temperature_B, top_p_B = logits_BV.float(), temperature_B.float(), top_p_B.float()
    if way != "greedy":
        logits_BV = logits_BV / torch.where(temperature_B > 0, temperature_B, 1.0)[:, None]
    total_B1 = logits_BV.logsumexp(-1, keepdim=True)
    if way == "greedy":
        token_B1 = logits_BV.argmax(-1, keepdim=True)
    else:
        probs_BV = (logits_BV - total_B1).exp_()
        if way == "mixed":
            probs_BV = nucleus(probs_BV, top_p_B)
        token_B1 = inverse_cdf(probs_BV, uniform_B)
        if way == "mixed":
            best_B1 = logits_BV.argmax(-1, keepdim=True)
            token_B1 = torch.where(temperature_B[:, None] > 0, token_B1, best_B1)
    return token_B1[:, 0], (logits_BV.gather(1, token_B1) - total_B1)[:, 0]


def inverse_cdf(probs_BV: torch.Tensor, uniform_B: torch.Tensor) -> torch.Tensor:
    """Return (B, 1): where the running sum first exceeds `uniform` of the whole sum.

    First the block is found, then the token in it, so that no vocabulary is summed up in order.
    """
    missing = -probs_BV.shape[1] % BLOCK
    if missing:
        probs_BV = torch.nn.functional.pad(probs_BV, (0, missing))
    blocks_BNK = probs_BV.unflatten(1, (-1, BLOCK))
    ends_BN = blocks_BNK.sum(-1, dtype=torch.float64).cumsum(-1)
    block_B1, rest_B1 = _first_above(ends_BN, uniform_B[:, None] * ends_BN[:, -1:])
    own_BK = blocks_BNK.gather(1, block_B1[..., None].expand(-1, 1, BLOCK))[:, 0]
    token_B1, _ = _first_above(own_BK.double().cumsum(-1), rest_B1)
    return block_B1 * BLOCK + token_B1


def _first_above(ends: torch.Tensor, point: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first end above the point, and how far the point is from the end before it."""
    # A point that rounding put at the very end would fall on whatever stands last, or on nothing.
    point = torch.minimum(point, ends[:, -1:] * (1 - 2.0**-50))
    at = torch.searchsorted(ends, point, right=True).clamp_(max=ends.shape[1] - 1)
    before = torch.where(at > 0, ends.gather(1, (at - 1).clamp(min=0)), 0.0)
    return at, point - before


def nucleus(probs_BV: torch.Tensor, top_p_B: torch.Tensor) -> torch.Tensor:
    """Keep the most likely tokens whose mass first reaches top_p; the top one always stays."""
    ordered_BV, order_BV = probs_BV.sort(-1, descending=True)
    before_BV = ordered_BV.cumsum(-1) - ordered_BV
    # Rounded sums reach 1 early: rows that keep everything must not lose their tails.
    most_B = torch.where(top_p_B < 1, top_p_B, float("inf"))
    kept_BV = torch.where(before_BV < most_B[:, None], ordered_BV, 0.0)
    kept_BV[:, 0] = ordered_BV[:, 0]
    return torch.zeros_like(probs_BV).scatter_(1, order_BV, kept_BV)

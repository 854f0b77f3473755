"""Draw tokens from logits, each request with its own counter-based random numbers.

A draw depends on the request's seed and its token number alone, never on what else is in the batch.
"""

from __future__ import annotations

import numpy as np
import torch


def uniforms(seeds_B: np.ndarray, counters_B: np.ndarray) -> np.ndarray:
    """Hash (seed, counter) to float64 in [0, 1) with splitmix64."""
    with np.errstate(over="ignore"):
        golden = np.uint64(0x9E3779B97F4A7C15)
        x = seeds_B.astype(np.uint64) + golden * (counters_B.astype(np.uint64) + np.uint64(1))
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw(
    logits_BV: torch.Tensor,
    temperatures_B: np.ndarray,
    top_p_B: np.ndarray,
    uniforms_B: np.ndarray,
) -> tuple[list[int], list[float]]:
    """Return one token per row and its logprob under softmax(logits / temperature).

    Temperature 0 takes the most likely token, with its logprob at temperature 1.
    """
    device = logits_BV.device
    greedy = temperatures_B <= 0
    if not (greedy | (temperatures_B == 1)).all():
        scale = torch.tensor(np.where(greedy, 1.0, temperatures_B), dtype=torch.float32)
        logits_BV = logits_BV / scale.to(device)[:, None]
    logprobs_BV = logits_BV.log_softmax(-1)
    if greedy.all():
        tokens_B = logits_BV.argmax(-1)
    else:
        tokens_B = _inverse_cdf(logprobs_BV.exp(), top_p_B, uniforms_B)
        if greedy.any():
            chosen = torch.from_numpy(greedy).to(device)
            tokens_B = torch.where(chosen, logits_BV.argmax(-1), tokens_B)
    picked_B = logprobs_BV.gather(1, tokens_B[:, None])[:, 0]
    return tokens_B.tolist(), picked_B.tolist()


def _inverse_cdf(
    probs_BV: torch.Tensor, top_p_B: np.ndarray, uniforms_B: np.ndarray
) -> torch.Tensor:
    if (top_p_B < 1).any():
        probs_BV = _nucleus(probs_BV, torch.from_numpy(top_p_B).to(probs_BV))
    # float32 sums over a large vocabulary would shift draws near the boundaries
    cdf_BV = probs_BV.double().cumsum(-1)
    points_B = torch.from_numpy(uniforms_B).to(cdf_BV.device) * cdf_BV[:, -1]
    return torch.searchsorted(cdf_BV, points_B[:, None], right=True)[:, 0].clamp_(
        max=probs_BV.shape[1] - 1
    )


def _nucleus(probs_BV: torch.Tensor, top_p_B: torch.Tensor) -> torch.Tensor:
    """Keep the most likely tokens whose mass first reaches top_p; the top one always stays."""
    ordered_BV, order_BV = probs_BV.sort(-1, descending=True)
    before_BV = ordered_BV.cumsum(-1) - ordered_BV
    kept_BV = torch.where(before_BV < top_p_B[:, None], ordered_BV, 0.0)
    kept_BV[:, 0] = ordered_BV[:, 0]
    return torch.zeros_like(probs_BV).scatter_(1, order_BV, kept_BV)

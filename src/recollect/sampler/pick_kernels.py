"""Picking tokens as two GPU kernels, which read the logits once and one block of them again.

The first finds each block's highest logit and the sum of its exponentials; the second finds the
block, then the token in it. `pick` does the same with plain torch; sums round otherwise.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

BLOCK = 1024
"""Tokens of the vocabulary that are summed up together."""


@triton.jit  # type: ignore[untyped-decorator]
def _load(  # type: ignore[no-untyped-def]
    logits, temperature, row, v, size, step, DRAWN: tl.constexpr
):  # fmt: skip
    """Load some of a row's logits, divided by its temperature if tokens are drawn."""
    x = tl.load(logits + row * step + v, mask=v < size, other=float("-inf")).to(tl.float32)
    if DRAWN:
        warmth = tl.load(temperature + row).to(tl.float32)
        x = x / tl.where(warmth > 0, warmth, 1.0)
    return x


@triton.jit  # type: ignore[untyped-decorator]
def _sum_blocks(  # type: ignore[no-untyped-def]
    logits, temperature, highest, sums, size, step,
    DRAWN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    v = block * BLOCK + tl.arange(0, BLOCK)
    x = _load(logits, temperature, row, v, size, step, DRAWN)
    high = tl.max(x, 0)
    # A block of which no token can be has no highest logit to subtract.
    total = tl.sum(tl.exp(x - tl.where(high == float("-inf"), 0.0, high)), 0)
    at = row * tl.num_programs(1) + block
    tl.store(highest + at, high)
    tl.store(sums + at, total)


@triton.jit  # type: ignore[untyped-decorator]
def _first_above(weights, point, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return where the running sum first exceeds a point, and the sum before that."""
    n = tl.arange(0, SIZE)
    ends = tl.cumsum(weights, 0)
    # As in `pick`: rounding must not put a point behind everything that can be. (2 to the -50.)
    whole = tl.max(ends, 0)
    point = tl.minimum(point, whole - whole * 8.881784197001252e-16)
    found = tl.min(tl.where((ends > point) & (weights > 0), n, SIZE - 1), 0)
    return found, tl.sum(tl.where(n == found, ends - weights, 0.0), 0)


@triton.jit  # type: ignore[untyped-decorator]
def _pick(  # type: ignore[no-untyped-def]
    logits, temperature, uniform, highest, sums, tokens, logprobs, size, step, blocks,
    DRAWN: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    b = tl.arange(0, BLOCKS)
    there = b < blocks
    high_b = tl.load(highest + row * blocks + b, mask=there, other=float("-inf"))
    sum_b = tl.load(sums + row * blocks + b, mask=there, other=0.0)
    high = tl.max(high_b, 0)
    weight_b = (sum_b * tl.exp(high_b - high)).to(tl.float64)
    total = tl.sum(weight_b, 0)
    point = total
    if DRAWN:
        point = tl.load(uniform + row).to(tl.float64) * total
        block, before = _first_above(weight_b, point, BLOCKS)
        point = tl.maximum(point - before, 0.0)
    else:
        block = tl.argmax(high_b, 0)
    block = tl.minimum(block, blocks - 1)
    k = tl.arange(0, BLOCK)
    v = block * BLOCK + k
    x = _load(logits, temperature, row, v, size, step, DRAWN)
    if DRAWN:
        own, _before = _first_above(tl.exp(x - high).to(tl.float64), point, BLOCK)
    else:
        own = tl.argmax(x, 0)
    token = tl.minimum(block * BLOCK + own, size - 1)
    chosen = tl.sum(tl.where(v == token, x, 0.0), 0)
    tl.store(tokens + row, token.to(tl.int64))
    tl.store(logprobs + row, chosen - high - tl.log(total.to(tl.float32)))


def quick_pick(
    logits_BV: torch.Tensor, temperature_B: torch.Tensor, uniform_B: torch.Tensor, drawn: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `pick` returns, for rows that are all drawn or all greedy."""
    rows, size = logits_BV.shape
    blocks = triton.cdiv(size, BLOCK)
    if logits_BV.stride(1) != 1:
        raise ValueError("a row of logits must be contiguous")
    temperature_B, uniform_B = temperature_B.contiguous(), uniform_B.contiguous()
    highest_BN, sums_BN = (
        torch.empty(rows, blocks, dtype=torch.float32, device=logits_BV.device) for _ in range(2)
    )
    tokens_B = torch.empty(rows, dtype=torch.long, device=logits_BV.device)
    logprobs_B = torch.empty(rows, dtype=torch.float32, device=logits_BV.device)
    step = logits_BV.stride(0)
    first: Any = _sum_blocks[rows, blocks]
    first(
        logits_BV, temperature_B, highest_BN, sums_BN, size, step,
        DRAWN=drawn, BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    second: Any = _pick[(rows,)]
    second(
        logits_BV, temperature_B, uniform_B, highest_BN, sums_BN, tokens_B, logprobs_B,
        size, step, blocks,
        DRAWN=drawn, BLOCK=BLOCK, BLOCKS=max(128, triton.next_power_of_2(blocks)), num_warps=4,
    )  # fmt: skip
    return tokens_B, logprobs_B

"""Small GPU kernels of the trainer that go over their numbers once, and change them in place."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 16
"""Tokens of one program that joins."""
RUN = 4096
"""Numbers of one program that adds."""


@triton.jit  # type: ignore[untyped-decorator]
def _join(  # type: ignore[no-untyped-def]
    out, lse, part, part_lse, tokens, lse_step, part_lse_step,
    out_step, out_head, part_step, part_head,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    t = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, PADDED)
    there = t < tokens
    both = there[:, None] & (d[None, :] < WIDTH)
    ours = tl.load(lse + head * lse_step + t, mask=there, other=0.0)
    theirs = tl.load(part_lse + head * part_lse_step + t, mask=there, other=0.0)
    high = tl.maximum(ours, theirs)
    joint = high + tl.log(tl.exp(ours - high) + tl.exp(theirs - high))
    own = out + t[:, None] * out_step + head * out_head + d[None, :]
    given = part + t[:, None] * part_step + head * part_head + d[None, :]
    kept = tl.load(own, mask=both, other=0.0).to(tl.float32) * tl.exp(ours - joint)[:, None]
    added = tl.load(given, mask=both, other=0.0).to(tl.float32) * tl.exp(theirs - joint)[:, None]
    tl.store(own, kept + added, mask=both)
    tl.store(lse + head * lse_step + t, joint, mask=there)


def join(out: torch.Tensor, lse: torch.Tensor, part: torch.Tensor, part_lse: torch.Tensor) -> None:
    """Do what `levels.join` does: outputs (N, H, D), log-sum-exps (H, N)."""
    if {out.stride(2), part.stride(2), lse.stride(1)} != {1}:
        raise ValueError("the numbers of a head must be contiguous")
    tokens, heads, width = out.shape
    part_lse = part_lse.contiguous()
    with torch.cuda.device_of(out):
        _join[(triton.cdiv(tokens, BLOCK), heads)](
            out, lse, part, part_lse, tokens, lse.stride(0), part_lse.stride(0), out.stride(0),
            out.stride(1), part.stride(0), part.stride(1), width, triton.next_power_of_2(width),
            BLOCK,
        )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator]
def _add(total, part, size, RUN: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * RUN + tl.arange(0, RUN)
    there = at < size
    sums = tl.load(total + at, mask=there) + tl.load(part + at, mask=there).to(tl.float32)
    tl.store(total + at, sums, mask=there)


def add(total: torch.Tensor, part: torch.Tensor) -> None:
    """Add numbers of half precision to float32 ones, at twice the rate of torch's own kernel."""
    if not total.is_contiguous() or total.dtype != torch.float32:
        raise ValueError("sums must be float32 and contiguous")
    with torch.cuda.device_of(total):
        _add[(triton.cdiv(total.numel(), RUN),)](total, part.contiguous(), total.numel(), RUN)

"""What a layer does between its matrix products, as few GPU kernels.

Each rounds where transformers' own layer rounds, in the types of the tensors it is given. Sizes of
blocks are fixed: what is recorded must not be tuned while it is.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

BLOCK = 1024
"""Numbers of one program that gates."""
TOGETHER = 16
"""Heads that a program turns."""


@triton.jit  # type: ignore[untyped-decorator]
def _add_norm(  # type: ignore[no-untyped-def]
    residual, added, weight, out, eps,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, PADDED)
    there = d < WIDTH
    at = row * WIDTH + d
    kind = residual.dtype.element_ty
    x = tl.load(residual + at, mask=there, other=0.0).to(tl.float32)
    if ADDS:
        x += tl.load(added + at, mask=there, other=0.0).to(tl.float32)
        x = x.to(kind)
        tl.store(residual + at, x, mask=there)
        x = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / WIDTH + eps)
    normed = (x * scale).to(kind).to(tl.float32)
    w = tl.load(weight + d, mask=there, other=0.0).to(tl.float32)
    tl.store(out + at, (normed * w).to(out.dtype.element_ty), mask=there)


def add_norm(
    residual: torch.Tensor,
    added: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Do what `fused_parts.add_norm` does."""
    rows, width = residual.shape
    padded = triton.next_power_of_2(width)
    out = torch.empty(rows, width, dtype=dtype, device=residual.device)
    run: Any = _add_norm[(rows,)]
    run(
        _whole(residual), residual if added is None else _whole(added), weight, out, eps,
        WIDTH=width, PADDED=padded, ADDS=added is not None,
        num_warps=min(16, max(1, padded // 256)),
    )  # fmt: skip
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _turn(  # type: ignore[no-untyped-def]
    qkv, cos, sin, into, query, keys, values,
    Q_HEADS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr,
    TOGETHER: tl.constexpr,
):  # fmt: skip
    row, half = tl.program_id(0).to(tl.int64), WIDTH // 2
    head = (tl.program_id(1) * TOGETHER + tl.arange(0, TOGETHER))[:, None]
    angle, d = tl.arange(0, PADDED), tl.arange(0, PADDED)[None, :]
    there = (head < Q_HEADS + 2 * HEADS) & (d < half)
    at = (row * (Q_HEADS + 2 * HEADS) + head) * WIDTH + d
    first = tl.load(qkv + at, mask=there, other=0.0)
    second = tl.load(qkv + at + half, mask=there, other=0.0)
    kind = cos.dtype.element_ty
    x, y = first.to(tl.float32), second.to(tl.float32)
    cos, sin, known = cos + row * WIDTH + angle, sin + row * WIDTH + angle, angle < half
    c = tl.load(cos, mask=known, other=0.0).to(tl.float32)[None, :]
    s = tl.load(sin, mask=known, other=0.0).to(tl.float32)[None, :]
    low = (x * c).to(kind).to(tl.float32) - (y * s).to(kind).to(tl.float32)
    c = tl.load(cos + half, mask=known, other=0.0).to(tl.float32)[None, :]
    s = tl.load(sin + half, mask=known, other=0.0).to(tl.float32)[None, :]
    high = (y * c).to(kind).to(tl.float32) + (x * s).to(kind).to(tl.float32)
    low, high = low.to(kind), high.to(kind)
    asks = there & (head < Q_HEADS)
    to = query + (row * Q_HEADS + head) * WIDTH + d
    tl.store(to, low.to(query.dtype.element_ty), mask=asks)
    tl.store(to + half, high.to(query.dtype.element_ty), mask=asks)
    place = tl.load(into + row) * HEADS - Q_HEADS + head
    asked = there & (head >= Q_HEADS) & (head < Q_HEADS + HEADS)
    to = keys + place * WIDTH + d
    tl.store(to, low.to(keys.dtype.element_ty), mask=asked)
    tl.store(to + half, high.to(keys.dtype.element_ty), mask=asked)
    kept = there & (head >= Q_HEADS + HEADS)
    to = values + (place - HEADS) * WIDTH + d
    tl.store(to, first.to(values.dtype.element_ty), mask=kept)
    tl.store(to + half, second.to(values.dtype.element_ty), mask=kept)


def turn(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    into: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
) -> torch.Tensor:
    """Do what `fused_parts.turn` does."""
    rows, (_places, heads, width) = len(qkv), keys.shape
    q_heads = qkv.shape[1] // width - 2 * heads
    query = torch.empty(rows, q_heads, width, dtype=keys.dtype, device=qkv.device)
    padded = triton.next_power_of_2(width // 2)
    run: Any = _turn[rows, triton.cdiv(q_heads + 2 * heads, TOGETHER)]
    run(
        _whole(qkv), _whole(cos), _whole(sin), _whole(into), query, _whole(keys), _whole(values),
        Q_HEADS=q_heads, HEADS=heads, WIDTH=width, PADDED=padded, TOGETHER=TOGETHER,
        num_warps=max(1, TOGETHER * padded // 256),
    )  # fmt: skip
    return query


@triton.jit  # type: ignore[untyped-decorator]
def _gate(both, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = d < WIDTH
    at = row * 2 * WIDTH + d
    gate = tl.load(both + at, mask=there, other=0.0).to(tl.float32)
    up = tl.load(both + at + WIDTH, mask=there, other=0.0).to(tl.float32)
    kind = out.dtype.element_ty
    gate = (gate / (1 + tl.exp(-gate))).to(kind).to(tl.float32)
    tl.store(out + row * WIDTH + d, (gate * up).to(kind), mask=there)


def gate(both: torch.Tensor) -> torch.Tensor:
    """Do what `fused_parts.gate` does."""
    rows, width = both.shape[0], both.shape[1] // 2
    out = torch.empty(rows, width, dtype=both.dtype, device=both.device)
    run: Any = _gate[rows, triton.cdiv(width, BLOCK)]
    run(_whole(both), out, WIDTH=width, BLOCK=BLOCK, num_warps=4)
    return out


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Refuse what is not in one piece: kernels are given no strides, and change some in place."""
    if not tensor.is_contiguous():
        raise ValueError("the numbers must be contiguous")
    return tensor

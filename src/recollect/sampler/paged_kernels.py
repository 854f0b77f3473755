"""Attention of single tokens to pages, as GPU kernels.

A token's program reads part of its sequence for the queries that share a head's keys; where
sequences are few, several read each, and a second kernel joins what they found.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from recollect.models.attention import Heads
from recollect.sampler.prefixes import BLOCK, QUERIES, Shared

PROGRAMS = 512
"""Fewer sequences times heads than this are cut, so that the whole GPU reads."""


@triton.jit  # type: ignore[untyped-decorator]
def _attend_token(  # type: ignore[no-untyped-def]
    query, keys, values, pages, begin, lengths, shared, out, total,
    scale, softcap, window,
    Q_HEADS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr,
    BEFORE: tl.constexpr, SPLITS: tl.constexpr, TIMES: tl.constexpr, BLOCK: tl.constexpr,
    PADDED: tl.constexpr, PRECISION: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    row, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    parts: tl.constexpr = BEFORE + SPLITS
    times: tl.constexpr = Q_HEADS // HEADS
    g, d = tl.arange(0, TIMES), tl.arange(0, PADDED)
    asked = (g[:, None] < times) & (d[None, :] < WIDTH)
    q_head = head * times + g
    q_at = (row * Q_HEADS + q_head[:, None]) * WIDTH + d[None, :]
    q = tl.load(query + q_at, mask=asked, other=0.0)
    end = tl.load(lengths + row).to(tl.int32) + 1
    start = tl.maximum(0, end - window) // BLOCK * BLOCK
    if BEFORE > 0:
        start = tl.load(shared + row)
    part = tl.cdiv(tl.cdiv(end - start, BLOCK), SPLITS) * BLOCK
    first, last = start + split * part, tl.minimum(end, start + (split + 1) * part)
    own = pages + tl.load(begin + row)
    best = tl.full([TIMES], float("-inf"), tl.float32)
    weight = tl.zeros([TIMES], tl.float32)
    sums = tl.zeros([TIMES, PADDED], tl.float32)
    for at in range(first, last, BLOCK):
        t = at + tl.arange(0, BLOCK)
        there = (t < last) & (t >= end - window)
        page = tl.load(own + t // SIZE, mask=t < last, other=0).to(tl.int64)
        place = ((page * SIZE + t % SIZE) * HEADS + head) * WIDTH
        both = there[:, None] & (d[None, :] < WIDTH)
        k = tl.load(keys + place[:, None] + d[None, :], mask=both, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        if CAPPED:
            scores = softcap * (1 - 2 / (tl.exp(2 * scores / softcap) + 1))
        scores = tl.where(there[None, :], scores, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, 1))
        safe = tl.where(higher == float("-inf"), 0.0, higher)
        kept, p = tl.exp(best - safe), tl.exp(scores - safe[:, None])
        v = tl.load(values + place[:, None] + d[None, :], mask=both, other=0.0)
        sums = sums * kept[:, None] + tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
        weight = weight * kept + tl.sum(p, 1)
        best = higher
    sums = sums / tl.where(weight == 0, 1.0, weight)[:, None]
    o_at = ((row * parts + BEFORE + split) * Q_HEADS + q_head[:, None]) * WIDTH + d[None, :]
    tl.store(out + o_at, sums.to(out.dtype.element_ty), mask=asked)
    if parts > 1:
        t_at = (row * parts + BEFORE + split) * Q_HEADS + q_head
        tl.store(total + t_at, best + tl.log(weight), mask=g < times)


@triton.jit  # type: ignore[untyped-decorator]
def _attend_shared(  # type: ignore[no-untyped-def]
    query, keys, values, pages, begin, shared, tiles, out, total,
    tile_row, scale, softcap,
    Q_HEADS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr,
    BEFORE: tl.constexpr, PARTS: tl.constexpr, QUERIES: tl.constexpr, BLOCK: tl.constexpr,
    PADDED: tl.constexpr, PRECISION: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    tile, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    count = tl.load(tiles + tile_row + tile)
    if count == 0:
        return
    times: tl.constexpr = Q_HEADS // HEADS
    first = tl.load(tiles + tile)
    m, d = tl.arange(0, QUERIES), tl.arange(0, PADDED)
    row, q_head = first + m // times, head * times + m % times
    asked = (m < count * times)[:, None] & (d < WIDTH)[None, :]
    q_at = (row * Q_HEADS + q_head)[:, None] * WIDTH + d[None, :]
    q = tl.load(query + q_at, mask=asked, other=0.0)
    end = tl.load(shared + first)
    part = tl.cdiv(tl.cdiv(end, BLOCK), BEFORE) * BLOCK
    own = pages + tl.load(begin + first)
    inside = (d < WIDTH)[None, :] & (tl.arange(0, BLOCK) >= 0)[:, None]
    best = tl.full([QUERIES], float("-inf"), tl.float32)
    weight = tl.zeros([QUERIES], tl.float32)
    sums = tl.zeros([QUERIES, PADDED], tl.float32)
    for at in range(split * part, tl.minimum(end, (split + 1) * part), BLOCK):
        t = at + tl.arange(0, BLOCK)  # all of them are shared
        page = tl.load(own + t // SIZE).to(tl.int64)
        place = ((page * SIZE + t % SIZE) * HEADS + head) * WIDTH
        k = tl.load(keys + place[:, None] + d[None, :], mask=inside, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
        if CAPPED:
            scores = softcap * (1 - 2 / (tl.exp(2 * scores / softcap) + 1))
        higher = tl.maximum(best, tl.max(scores, 1))
        kept, p = tl.exp(best - higher), tl.exp(scores - higher[:, None])
        v = tl.load(values + place[:, None] + d[None, :], mask=inside, other=0.0)
        sums = sums * kept[:, None] + tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
        weight = weight * kept + tl.sum(p, 1)
        best = higher
    sums = sums / tl.where(weight == 0, 1.0, weight)[:, None]
    t_at = (row.to(tl.int64) * PARTS + split) * Q_HEADS + q_head
    tl.store(out + t_at[:, None] * WIDTH + d[None, :], sums, mask=asked)
    tl.store(total + t_at, best + tl.log(weight), mask=m < count * times)


@triton.jit  # type: ignore[untyped-decorator]
def _join_splits(  # type: ignore[no-untyped-def]
    out, total, shared, joined,
    Q_HEADS: tl.constexpr, WIDTH: tl.constexpr, BEFORE: tl.constexpr, SPLITS: tl.constexpr,
    PADDED: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    s, d = tl.arange(0, SPLITS), tl.arange(0, PADDED)
    part = (row * SPLITS + s) * Q_HEADS + head
    made = s >= 0
    if BEFORE > 0:  # nobody wrote these parts of a row without a tile
        made = s >= tl.where(tl.load(shared + row) > 0, 0, BEFORE)
    sums = tl.load(total + part, mask=made, other=float("-inf"))
    shares = tl.exp(sums - tl.max(sums, 0))  # the first part of its own is never empty
    shares = shares / tl.sum(shares, 0)
    both = made[:, None] & (d[None, :] < WIDTH)
    found = tl.load(out + part[:, None] * WIDTH + d[None, :], mask=both, other=0.0)
    whole = tl.sum(found * shares[:, None], 0)
    at = (row * Q_HEADS + head) * WIDTH + d
    tl.store(joined + at, whole.to(joined.dtype.element_ty), mask=d < WIDTH)


def join_splits(
    out: torch.Tensor,
    total: torch.Tensor,
    dtype: torch.dtype,
    before: int = 0,
    shared: torch.Tensor | None = None,
) -> torch.Tensor:
    """Join what the parts of B sequences gave: (B, parts, Hq, D), weighted by e to the totals.

    The parts `before` are of what is shared, which some share nothing of.
    """
    rows, splits, q_heads, width = out.shape
    joined = torch.empty(rows, q_heads, width, dtype=dtype, device=out.device)
    padded = triton.next_power_of_2(width)
    join: Any = _join_splits[rows, q_heads]
    join(
        out, total, total if shared is None else shared, joined,
        Q_HEADS=q_heads, WIDTH=width, BEFORE=before, SPLITS=splits, PADDED=padded,
        num_warps=1 if splits * padded <= 1024 else 4,
    )  # fmt: skip
    return joined


def attend_tokens(
    heads: Heads,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    pages: torch.Tensor,
    begin: torch.Tensor,
    lengths: torch.Tensor,
    size: int,
    shared: Shared | None = None,
) -> torch.Tensor:
    """Let B queries (B, Hq, D) see `lengths + 1` tokens each; return (B, Hq, D).

    Keys and values are (places, Hkv, D); a sequence's pages begin at `begin` in `pages`.
    """
    rows, q_heads, width = query.shape
    kv_heads = keys.shape[1]
    query, times = query.contiguous(), q_heads // kv_heads
    splits, before = 1, 0
    if shared and (heads.window or shared.most * times > QUERIES):
        shared = None
    while splits < (16 if shared else 32) and rows * kv_heads * splits < PROGRAMS:
        splits *= 2
    if shared:
        tiles = shared.tiles.shape[1]
        wanted = triton.cdiv(PROGRAMS, max(1, tiles // 4) * kv_heads)  # a tile has eight or so
        before = min(32, triton.next_power_of_2(splits + wanted)) - splits
    parts = before + splits
    out = query.new_empty(rows, parts, q_heads, width, dtype=None if parts == 1 else torch.float)
    total = query.new_empty(rows, parts, q_heads, dtype=torch.float32)
    shape = dict(Q_HEADS=q_heads, HEADS=kv_heads, WIDTH=width, SIZE=size, BLOCK=BLOCK,
                 PADDED=triton.next_power_of_2(width), BEFORE=before,
                 PRECISION="ieee" if query.dtype == torch.float32 else "tf32",
                 CAPPED=bool(heads.softcap))  # fmt: skip
    some = lengths  # read by no one
    if shared:
        some = shared.tokens
        together: Any = _attend_shared[tiles, kv_heads, before]
        together(
            query, keys, values, pages, begin, some, shared.tiles, out, total,
            shared.tiles.stride(0), heads.scaling, heads.softcap or 0.0,
            PARTS=parts, QUERIES=QUERIES, **shape,
        )  # fmt: skip
    run: Any = _attend_token[rows, kv_heads, splits]
    run(
        query, keys, values, pages, begin, lengths, some, out, total,
        heads.scaling, heads.softcap or 0.0, heads.window or 1 << 30,
        SPLITS=splits, TIMES=max(16, triton.next_power_of_2(times)), **shape,
        num_warps=2, num_stages=2,  # chosen on an H200
    )  # fmt: skip
    if parts == 1:
        return out[:, 0]
    return join_splits(out, total, query.dtype, before, some)

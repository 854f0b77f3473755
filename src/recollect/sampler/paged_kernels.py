"""Attention to pages as GPU kernels: of single tokens, and of runs of tokens.

A token's program reads part of its sequence for the queries that share a head's keys; where
sequences are few, several read each, and a second kernel joins what they found. A run is cut into
tiles, each with a program for the queries that share a head's keys, or some of them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

from recollect.models.attention import Heads
from recollect.sampler.paged_attention import ROOM, Program
from recollect.sampler.prefixes import BLOCK, QUERIES, Shared

PROGRAMS = 512
"""Fewer sequences times heads than this are cut, so that the whole GPU reads."""
LOG2E = 1 / math.log(2)
"""Powers of two are what a GPU computes: that of this times x is e to the x."""


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


@triton.jit  # type: ignore[untyped-decorator]
def _see(  # type: ignore[no-untyped-def]
    q, at_q, best, weight, sums, keys, values, own, head, first, last, length,
    scale, squash, window,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    PADDED: tl.constexpr, PRECISION: tl.constexpr, CAPPED: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Add what a tile's queries see of the keys from `first` to `last`; both are of whole blocks.

    Without a mask every query sees them all, and none is beyond the sequence. Pages are looked up
    a block ahead: keys that waited for them would not be fetched ahead themselves.
    """
    d, n = tl.arange(0, PADDED), tl.arange(0, BLOCK)
    page = tl.load(own + (first + n) // SIZE, mask=first + n < length, other=0)
    for at in range(first, last, BLOCK):
        t = at + n
        place = ((page.to(tl.int64) * SIZE + t % SIZE) * HEADS + head) * WIDTH
        at_k = place[:, None] + d[None, :]
        page = tl.load(own + (t + BLOCK) // SIZE, mask=t + BLOCK < length, other=0)
        if MASKED:
            there = (t < length)[:, None] & (d < WIDTH)[None, :]
            k = tl.load(keys + at_k, mask=there, other=0.0)
            v = tl.load(values + at_k, mask=there, other=0.0)
        elif WIDTH < PADDED:
            inside = (t >= 0)[:, None] & (d < WIDTH)[None, :]
            k = tl.load(keys + at_k, mask=inside, other=0.0)
            v = tl.load(values + at_k, mask=inside, other=0.0)
        else:
            k = tl.load(keys + at_k)
            v = tl.load(values + at_k)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if CAPPED:
            scores = 1 - 2 / (tl.exp2(scores * squash) + 1)
        if MASKED:
            seen = (t[None, :] <= at_q[:, None]) & (t[None, :] > at_q[:, None] - window)
            scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, 1) * scale)
        safe = higher
        if MASKED:
            safe = tl.where(higher == float("-inf"), 0.0, higher)
        kept, p = tl.exp2(best - safe), tl.exp2(scores * scale - safe[:, None])
        weight = weight * kept + tl.sum(p, 1)
        sums = tl.dot(p.to(v.dtype), v, sums * kept[:, None], input_precision=PRECISION)
        best = higher
    return best, weight, sums


# Numbers that differ from pass to pass must not be compiled anew when 16 happens to divide them.
@triton.jit(do_not_specialize=["tile_row", "run_row", "window"])  # type: ignore[untyped-decorator]
def _attend_tile(  # type: ignore[no-untyped-def]
    query, keys, values, pages, tiles, runs, out,
    tile_row, run_row, scale, squash, window,
    Q_HEADS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr,
    TILE: tl.constexpr, PACK: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    PADDED: tl.constexpr, PRECISION: tl.constexpr, CAPPED: tl.constexpr, WINDOWED: tl.constexpr,
):  # fmt: skip
    times: tl.constexpr = Q_HEADS // HEADS
    groups: tl.constexpr = (times + PACK - 1) // PACK
    head, group = tl.program_id(0) // groups, tl.program_id(0) % groups
    tile = tl.num_programs(1) - 1 - tl.program_id(1)  # those that see most begin first
    run = tl.load(tiles + tile)
    if run < 0:
        return
    first = tl.load(tiles + tile_row + tile)
    end = tl.load(runs + run)
    length = tl.load(runs + run_row + run).to(tl.int32)
    own = pages + tl.load(runs + 2 * run_row + run)
    d, row = tl.arange(0, PADDED), tl.arange(0, ROWS)
    token, of_group = first + row // PACK, group * PACK + row % PACK
    asked = (row < TILE * PACK) & (token < end) & (of_group < times)
    q_at = (token * Q_HEADS + head * times + of_group)[:, None] * WIDTH + d[None, :]
    both = asked[:, None] & (d < WIDTH)[None, :]
    q = tl.load(query + q_at, mask=both, other=0.0)
    at_first = length - (end - first).to(tl.int32)
    at_q = at_first + row // PACK
    beyond = tl.minimum(length, at_first + TILE)
    best = tl.full([ROWS], float("-inf"), tl.float32)
    weight = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, PADDED], tl.float32)
    begin, whole = 0, 0
    if WINDOWED:  # the first keys that any query sees, and the first that all of them do
        begin = tl.maximum(0, at_first + 1 - window) // BLOCK * BLOCK
        whole = tl.cdiv(tl.maximum(0, beyond - window), BLOCK) * BLOCK
        best, weight, sums = _see(
            q, at_q, best, weight, sums, keys, values, own, head, begin,
            tl.minimum(whole, beyond), length, scale, squash, window,
            HEADS, WIDTH, SIZE, BLOCK, PADDED, PRECISION, CAPPED, True,
        )  # fmt: skip
    rest = tl.maximum(whole, (at_first + 1) // BLOCK * BLOCK)
    best, weight, sums = _see(
        q, at_q, best, weight, sums, keys, values, own, head, whole, rest,
        length, scale, squash, window,
        HEADS, WIDTH, SIZE, BLOCK, PADDED, PRECISION, CAPPED, False,
    )  # fmt: skip
    best, weight, sums = _see(
        q, at_q, best, weight, sums, keys, values, own, head, rest, beyond,
        length, scale, squash, window,
        HEADS, WIDTH, SIZE, BLOCK, PADDED, PRECISION, CAPPED, True,
    )  # fmt: skip
    sums = sums / tl.where(weight == 0, 1.0, weight)[:, None]
    tl.store(out + q_at, sums.to(out.dtype.element_ty), mask=both)


def _room(query: torch.Tensor) -> int:
    """Return the shared memory that a program may have."""
    if not query.is_cuda:
        return ROOM
    found = triton.runtime.driver.active.utils.get_device_properties(query.device.index)
    return int(found["max_shared_mem"])


def attend_runs(
    heads: Heads,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    pages: torch.Tensor,
    tiles: torch.Tensor,
    runs: torch.Tensor,
    size: int,
    tile: int,
    program: Program | None = None,
) -> torch.Tensor:
    """Let N queries (N, Hq, D) see their sequences up to themselves; return (N, Hq, D).

    `tiles` and `runs` are those of a `PromptPlan`; a tile is `tile` tokens of one run.
    """
    query = query.contiguous()
    out = torch.zeros_like(query)  # padding is in no tile, and must not become garbage
    q_heads, width = query.shape[1:]
    kv_heads, some = keys.shape[1], program or Program.of(width, query.dtype, _room(query))
    pack = some.packed(q_heads // kv_heads, tile, kv_heads * tiles.shape[1])
    rows = max(16, triton.next_power_of_2(tile * pack))
    scale, squash = heads.scaling * LOG2E, 0.0
    if heads.softcap:
        scale, squash = heads.softcap * LOG2E, 2 * heads.scaling / heads.softcap * LOG2E
    run: Any = _attend_tile[kv_heads * triton.cdiv(q_heads // kv_heads, pack), tiles.shape[1]]
    run(
        query, keys, values, pages, tiles, runs, out,
        tiles.stride(0), runs.stride(0), scale, squash, heads.window or 1 << 30,
        Q_HEADS=q_heads, HEADS=kv_heads, WIDTH=width, SIZE=size, TILE=tile, PACK=pack,
        ROWS=rows, BLOCK=some.block, PADDED=triton.next_power_of_2(width),
        PRECISION="ieee" if query.dtype == torch.float32 else "tf32",
        CAPPED=bool(heads.softcap), WINDOWED=bool(heads.window),
        num_warps=some.warps if rows >= some.rows else 4, num_stages=some.stages,
    )  # fmt: skip
    return out

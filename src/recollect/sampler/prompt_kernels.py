"""Attention of runs of tokens to pages, as a GPU kernel: what reads prompts, and tokens guessed.

A run is cut into tiles, each with a program for the queries that share a head's keys, or some of
them. Blocks of keys that all of its queries see are read without masks.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

from recollect.models.attention import Heads
from recollect.sampler.paged_attention import ROOM, Program

LOG2E = 1 / math.log(2)
"""Powers of two are what a GPU computes: that of this times x is e to the x."""


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

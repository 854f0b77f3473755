"""Attention over a prefix trie on a GPU, level by level.

The trie is cut into nodes, runs of tokens without a branch. A token sees its own node up to itself
and every node above it whole. What stands below a node is one run of tokens, so the nodes of one
depth take one call, and a large node one of its own with a faster kernel. The parts are joined by
their log-sum-exp, and a kernel's backward, given the joint output and log-sum-exp, returns each
part's exact gradient. So the cost is that of the pairs that see each other, whatever the trie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
import torch

from recollect.train.attention import Heads

WIDEST = 256
"""Numbers per head that the kernels take."""
LARGE = 1 << 24
"""Pairs from which a node is worth a call of its own, which costs the host a tenth of a millisecond
in every layer ..."""
STEP = 512
"""... with numbers of keys and queries that are multiples of this: cuDNN takes half a second to
prepare for every new shape."""


@dataclass(frozen=True)
class Nodes:
    """The compressed trie over N tokens that stand in depth-first order."""

    begin: np.ndarray
    """(K + 1,): node k is the tokens begin[k] to begin[k + 1]."""
    depth: np.ndarray
    """(K,): nodes above it."""
    end: np.ndarray
    """(K,): where the tokens below the node end; they begin where its own end."""


def find_nodes(branches: Sequence[tuple[int, int]], tokens: int, step: int = STEP) -> Nodes:
    """Cut the trie where it branches, and after the last multiple of `step` tokens of a long node.

    A branch is its first token and the one above that, as flat indices; -1 is above a root.
    """
    above = dict(branches)
    cuts = {first for first, _ in branches} | {parent + 1 for _, parent in branches}
    begin = np.array(sorted(cuts | {tokens}), dtype=np.int64)
    whole = begin[:-1] + np.diff(begin) // step * step
    begin = np.unique(np.concatenate([begin, whole]))
    count = len(begin) - 1
    depth, end = np.zeros(count, dtype=np.int64), begin[1:].copy()
    parents = np.full(count, -1)
    for k, first in enumerate(begin[:-1].tolist()):
        parent = above.get(first, first - 1)
        if parent >= 0:
            parents[k] = np.searchsorted(begin, parent, side="right") - 1
            depth[k] = depth[parents[k]] + 1
    for k in range(count - 1, -1, -1):
        if parents[k] >= 0:
            end[parents[k]] = max(end[parents[k]], end[k])
    return Nodes(begin, depth, end)


@dataclass(frozen=True)
class Part:
    """One kernel call: runs of queries, and the run of keys that each of them sees."""

    queries: slice | torch.Tensor
    """Which tokens ask: a slice, or flat indices where the runs have gaps between them."""
    keys: slice | torch.Tensor
    cu_q: torch.Tensor
    """int32 (runs + 1,): where the runs begin among the queries."""
    cu_k: torch.Tensor
    max_q: int
    max_k: int
    causal: bool

    round: bool
    """Whether it is one run, of sizes that come again."""


Run = tuple[int, int, int, int]
"""Begin and end of the queries, begin and end of the keys."""


def make_parts(
    nodes: Nodes, device: torch.device, large: int = LARGE, step: int = STEP
) -> list[Part]:
    """Plan the calls: every node with itself, then what stands below the nodes of each depth."""
    begin, after, end = nodes.begin[:-1].tolist(), nodes.begin[1:].tolist(), nodes.end.tolist()
    own = [(b, a, b, a) for b, a in zip(begin, after, strict=True)]
    is_large = [(a - b) % step == 0 and (a - b) ** 2 >= 2 * large for b, a, _, _ in own]
    parts = [
        _part([run], device, True, True) for run, alone in zip(own, is_large, strict=True) if alone
    ]
    if rest := [run for run, alone in zip(own, is_large, strict=True) if not alone]:
        parts.append(_part(rest, device, True, False))
    for depth in range(int(nodes.depth.max(initial=-1)) + 1):
        rest = []
        for k in np.flatnonzero((nodes.depth == depth) & (nodes.end > nodes.begin[1:])).tolist():
            size, whole = after[k] - begin[k], (end[k] - after[k]) // step * step
            if size % step or size * whole < large:
                whole = 0
            if whole:
                run = (after[k], after[k] + whole, begin[k], after[k])
                parts.append(_part([run], device, False, True))
            if after[k] + whole < end[k]:
                rest.append((after[k] + whole, end[k], begin[k], after[k]))
        if rest:
            parts.append(_part(rest, device, False, False))
    return parts


def _part(runs: Sequence[Run], device: torch.device, causal: bool, round_: bool) -> Part:
    q_begin, q_end, k_begin, k_end = np.array(runs, dtype=np.int64).T
    sizes_q, sizes_k = q_end - q_begin, k_end - k_begin
    return Part(
        _select(q_begin, q_end, device),
        _select(k_begin, k_end, device),
        _offsets(sizes_q, device),
        _offsets(sizes_k, device),
        int(sizes_q.max(initial=0)),
        int(sizes_k.max(initial=0)),
        causal,
        round_,
    )


def _select(begin: np.ndarray, end: np.ndarray, device: torch.device) -> slice | torch.Tensor:
    """Name the runs as one slice where they touch: a slice copies nothing."""
    if (begin[1:] == end[:-1]).all():
        return slice(int(begin[0]), int(end[-1]))
    runs = [np.arange(b, e) for b, e in zip(begin, end, strict=True)]
    return torch.from_numpy(np.concatenate(runs)).to(device)


def _offsets(sizes: np.ndarray, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)).to(device)


def join(
    out: torch.Tensor, lse: torch.Tensor, part: torch.Tensor, part_lse: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Join two softmaxes over disjoint keys: outputs (N, H, D), log-sum-exps (H, N)."""
    joint = torch.logaddexp(lse, part_lse)
    kept, added = (lse - joint).exp().t()[..., None], (part_lse - joint).exp().t()[..., None]
    return (out * kept + part * added).to(out.dtype), joint


@cache
def _compiled_join() -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Compile on first use: the compiler takes seconds to import, and a CPU has no use for it."""
    return torch.compile(join, dynamic=True)


def join_compiled(*parts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Do the same in one kernel."""
    return _compiled_join()(*parts)


class Kernel(Protocol):
    """Attention of runs of queries to runs of keys, with its log-sum-exp."""

    lse_dtype: torch.dtype
    join: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    """What the function of that name does."""

    def forward(
        self, part: Part, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take q (Nq, Hq, D), k and v (Nk, Hkv, D); return (Nq, Hq, D) and float32 (Hq, Nq)."""

    def backward(
        self,
        part: Part,
        grad: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor,
        scale: float,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the gradients of q, k and v, for an output and log-sum-exp that may be joint."""


class Cuda:
    """torch's own kernels: cuDNN's for a single run, FlashAttention for many; bf16 or fp16."""

    lse_dtype = torch.float32
    join = staticmethod(join_compiled)

    def forward(
        self, part: Part, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run a forward kernel."""
        if part.round:
            out, lse, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(
                *(_batched(x) for x in (q, k, v)), None, True, 0.0, part.causal, False, scale=scale
            )
            return out[0].transpose(0, 1), lse[0, :, :, 0]
        out, lse, *_ = torch.ops.aten._flash_attention_forward(
            q, k, v, part.cu_q, part.cu_k, part.max_q, part.max_k, 0.0, part.causal, False,
            scale=scale,
        )  # fmt: skip
        return out, lse

    def backward(
        self,
        part: Part,
        grad: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor,
        scale: float,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Run a backward kernel; it reads no random state, as nothing is dropped."""
        unused = torch.zeros(2, dtype=torch.uint64, device=q.device)
        if part.round:
            seed = unused[:1].view(torch.int64)
            grads = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
                *(_batched(x) for x in (grad, q, k, v, out)), lse[None, :, :, None].contiguous(),
                seed, seed, None, None, None, part.max_q, part.max_k, 0.0, part.causal, scale=scale,
            )  # fmt: skip
            dq, dk, dv = (x[0].transpose(0, 1) for x in grads)
            return dq, dk, dv
        return torch.ops.aten._flash_attention_backward(
            grad, q, k, v, out, lse.contiguous(), part.cu_q, part.cu_k, part.max_q, part.max_k, 0.0,
            part.causal, unused, unused, scale=scale,
        )  # fmt: skip


def _batched(rows: torch.Tensor) -> torch.Tensor:
    """Turn (N, H, D) into (1, H, N, D)."""
    return rows.transpose(0, 1)[None]


class Attend(torch.autograd.Function):
    """Attention of every token to its path from the root: (N, Hq, D) and twice (N, Hkv, D)."""

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        parts: Sequence[Part],
        kernel: Kernel,
        scale: float,
    ) -> torch.Tensor:
        """Join what the parts give; those of the nodes themselves come first and cover all."""
        out = torch.empty_like(query)
        lse = query.new_empty(query.shape[1], len(query), dtype=kernel.lse_dtype)
        for part in parts:
            at, seen = part.queries, part.keys
            found = kernel.forward(part, query[at], key[seen], value[seen], scale)
            out[at], lse[:, at] = found if part.causal else kernel.join(out[at], lse[:, at], *found)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.parts, ctx.kernel, ctx.scale = parts, kernel, scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        """Add up what the parts give, each for the joint output."""
        query, key, value, out, lse = ctx.saved_tensors
        grad = grads[0].contiguous()
        totals = [torch.empty_like(x) for x in (query, key, value)]
        for part in ctx.parts:
            at, seen = part.queries, part.keys
            found = ctx.kernel.backward(
                part, grad[at], query[at], key[seen], value[seen], out[at], lse[:, at], ctx.scale
            )
            for total, index, gradient in zip(totals, (at, seen, seen), found, strict=True):
                # The runs of one part do not overlap, so nothing is added twice.
                total[index] = gradient if part.causal else total[index] + gradient
        return *totals, None, None, None


def attend(
    parts: Sequence[Part],
    heads: Heads,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    kernel: Kernel,
) -> torch.Tensor:
    """Take query (Hq, N, D), key and value (Hkv, N, D); return (N, Hq, D)."""
    rows = (x.transpose(0, 1).contiguous() for x in (query, key, value))
    return Attend.apply(*rows, parts, kernel, heads.scaling)

"""Attention over a prefix trie on a GPU, level by level.

The trie is cut into nodes, runs of tokens without a branch. A token sees its own node up to itself
and every node above it whole. What is below a node is one run of tokens, so the nodes of one
depth take one call, and a large node one of its own with a faster kernel; short ones take none:
their keys precede those of every node below. The parts are joined by their log-sum-exp, and a
kernel's backward, given the joint output and log-sum-exp, returns each part's exact gradient. So
the cost is that of the pairs that see each other, whatever the trie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from recollect.models.attention import Heads
from recollect.models.transfer import put
from recollect.models.trie.nodes import STEP, Nodes, fold

WIDEST = 256
"""Numbers per head that the kernels take."""
LARGE = 1 << 33
"""Pairs times numbers of a query from which a node is worth a call of its own, which costs the host
a tenth of a millisecond in every layer."""


@dataclass(frozen=True)
class KernelCall:
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
    """Whether a run's last query sees all its keys, the one before it all but the last, ..."""
    round: bool
    """Whether it is one run, of sizes that come again."""


Run = tuple[int, int, list[tuple[int, int]]]
"""Begin and end of the queries, and of every stretch of the keys."""


def make_parts(
    nodes: Nodes, device: torch.device, pairs: int, step: int = STEP
) -> list[KernelCall]:
    """Plan the calls: every node with itself, then what is below the nodes of each depth.

    Pairs from which a call of its own is worth it for a node of round size.
    """
    begin, after, end = nodes.begin.tolist(), nodes.after.tolist(), nodes.end.tolist()
    alone = (nodes.size % step == 0) & (nodes.size**2 >= 2 * pairs)
    folded = fold(nodes, alone)
    own = [[(begin[k], after[k])] for k in range(len(begin))]
    for k, parent in enumerate(nodes.parent.tolist()):
        if parent >= 0:  # whatever is folded above the parent stands among its keys already
            own[k] = own[parent][: None if folded[parent] else -1] + own[k]
    runs: list[Run] = [(b, a, keys) for b, a, keys in zip(begin, after, own, strict=True)]
    parts = [_part([runs[k]], device, True, True) for k in np.flatnonzero(alone).tolist()]
    if rest := [runs[k] for k in np.flatnonzero(~alone).tolist()]:
        parts.append(_part(rest, device, True, False))
    seen_below = (nodes.below > 0) & ~folded
    for depth in range(int(nodes.depth.max(initial=-1)) + 1):
        rest = []
        for k in np.flatnonzero((nodes.depth == depth) & seen_below).tolist():
            size, whole = after[k] - begin[k], (end[k] - after[k]) // step * step
            if size % step or size * whole < pairs:
                whole = 0
            keys = [(begin[k], after[k])]
            if whole:
                parts.append(_part([(after[k], after[k] + whole, keys)], device, False, True))
            if after[k] + whole < end[k]:
                rest.append((after[k] + whole, end[k], keys))
        if rest:
            parts.append(_part(rest, device, False, False))
    return parts


def _part(runs: Sequence[Run], device: torch.device, causal: bool, round_: bool) -> KernelCall:
    queries = [(begin, end) for begin, end, _ in runs]
    keys = [stretch for *_, stretches in runs for stretch in stretches]
    sizes_q = [end - begin for begin, end in queries]
    sizes_k = [sum(end - begin for begin, end in stretches) for *_, stretches in runs]
    return KernelCall(
        _select(queries, device),
        _select(keys, device),
        _offsets(sizes_q, device),
        _offsets(sizes_k, device),
        max(sizes_q),
        max(sizes_k),
        causal,
        round_,
    )


def _select(stretches: Sequence[tuple[int, int]], device: torch.device) -> slice | torch.Tensor:
    """Name the tokens as one slice where the stretches touch: a slice copies nothing."""
    begin, end = np.array(stretches, dtype=np.int64).T
    if (begin[1:] == end[:-1]).all():
        return slice(int(begin[0]), int(end[-1]))
    return put(np.concatenate([np.arange(b, e) for b, e in stretches]), device)


def _offsets(sizes: Sequence[int], device: torch.device) -> torch.Tensor:
    return put(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32), device)


def join(out: torch.Tensor, lse: torch.Tensor, part: torch.Tensor, part_lse: torch.Tensor) -> None:
    """Join two softmaxes over disjoint keys in place: outputs (N, H, D), log-sum-exps (H, N)."""
    joint = torch.logaddexp(lse, part_lse)
    kept, added = (lse - joint).exp().t()[..., None], (part_lse - joint).exp().t()[..., None]
    out.copy_(out * kept + part * added)
    lse.copy_(joint)


class Kernel(Protocol):
    """Attention of runs of queries to runs of keys, with its log-sum-exp."""

    sum_dtype: torch.dtype
    """The type of log-sum-exps and of sums of gradients."""

    def join(
        self, out: torch.Tensor, lse: torch.Tensor, part: torch.Tensor, part_lse: torch.Tensor
    ) -> None:
        """Do what the function of that name does."""

    def forward(
        self, part: KernelCall, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take q (Nq, Hq, D), k and v (Nk, Hkv, D); return (Nq, Hq, D) and float32 (Hq, Nq)."""

    def backward(
        self,
        part: KernelCall,
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

    sum_dtype = torch.float32

    def join(
        self, out: torch.Tensor, lse: torch.Tensor, part: torch.Tensor, part_lse: torch.Tensor
    ) -> None:
        """Join in one pass."""
        from recollect.models import kernels  # a CPU's torch comes without what makes them

        kernels.join(out, lse, part, part_lse)

    def forward(
        self, part: KernelCall, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
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
        part: KernelCall,
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
        parts: Sequence[KernelCall],
        kernel: Kernel,
        scale: float,
    ) -> torch.Tensor:
        """Join what the parts give; those of the nodes themselves come first and cover all."""
        out = torch.empty_like(query)
        lse = query.new_empty(query.shape[1], len(query), dtype=kernel.sum_dtype)
        for part in parts:
            at, seen = part.queries, part.keys
            found = kernel.forward(part, query[at], key[seen], value[seen], scale)
            if part.causal:
                out[at], lse[:, at] = found
                continue
            own = out[at], lse[:, at]
            kernel.join(*own, *found)
            if not isinstance(at, slice):  # then they were copies
                out[at], lse[:, at] = own
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.parts, ctx.kernel, ctx.scale = parts, kernel, scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        """Add up what the parts give, each for the joint output."""
        query, key, value, out, lse = ctx.saved_tensors
        kernel: Kernel = ctx.kernel
        grad = grads[0].contiguous()
        dq = torch.empty_like(query)
        # A key that is repeated has many gradients: in half precision their sum would be lost.
        totals = [torch.zeros_like(x, dtype=kernel.sum_dtype) for x in (key, value)]
        for part in ctx.parts:
            at, seen = part.queries, part.keys
            asked, *given = kernel.backward(
                part, grad[at], query[at], key[seen], value[seen], out[at], lse[:, at], ctx.scale
            )
            # The runs of one part have no query in common, so none is added to twice.
            if part.causal:
                dq[at] = asked
            else:
                dq[at] += asked
            for total, gradient in zip(totals, given, strict=True):
                if isinstance(seen, slice):
                    total[seen] += gradient
                else:  # some keys may be there several times
                    total.index_add_(0, seen, gradient.to(total.dtype))
        dk, dv = (total.to(key.dtype) for total in totals)
        return dq, dk, dv, None, None, None


def attend(
    parts: Sequence[KernelCall],
    heads: Heads,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    kernel: Kernel,
) -> torch.Tensor:
    """Take query (Hq, N, D), key and value (Hkv, N, D); return (N, Hq, D)."""
    rows = (x.transpose(0, 1).contiguous() for x in (query, key, value))
    return Attend.apply(*rows, parts, kernel, heads.scaling)

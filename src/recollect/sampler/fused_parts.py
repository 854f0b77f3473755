"""What a layer does between its matrix products: on a GPU one kernel each, else plain torch.

Plain torch says what is meant: where to round, and to which type, is transformers' own order.
"""

from __future__ import annotations

import torch


def add_norm(
    residual: torch.Tensor,
    added: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Add to the residual (N, width) in place, if there is something; return its RMS norm."""
    if residual.is_cuda:
        from recollect.sampler import fused_kernels

        return fused_kernels.add_norm(residual, added, weight, eps, dtype)
    if added is not None:
        residual += added
    wide = residual.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (weight * normed.to(residual.dtype)).to(dtype)


def turn(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    into: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
) -> torch.Tensor:
    """Rotate queries and keys by their positions; store keys and values, return queries.

    `qkv` is (N, (Hq + 2 Hkv) D), `cos` and `sin` are (N, D), and of the tables (places, Hkv, D) the
    places `into` are written. The queries are (N, Hq, D), of the tables' type.
    """
    if qkv.is_cuda:
        from recollect.sampler import fused_kernels

        return fused_kernels.turn(qkv, cos, sin, into, keys, values)
    _places, heads, width = keys.shape
    qkv = qkv.unflatten(1, (-1, width))
    turned, value = qkv.tensor_split([qkv.shape[1] - heads], 1)
    crossed = torch.cat((-turned[..., width // 2 :], turned[..., : width // 2]), -1)
    turned = turned * cos[:, None] + crossed * sin[:, None]
    query, key = turned.to(keys.dtype).tensor_split([turned.shape[1] - heads], 1)
    keys.index_copy_(0, into, key)
    values.index_copy_(0, into, value.to(values.dtype))
    return query


def gate(both: torch.Tensor) -> torch.Tensor:
    """Take gates and what they gate, side by side (N, 2 width); return silu(gate) * other."""
    if both.is_cuda:
        from recollect.sampler import fused_kernels

        return fused_kernels.gate(both)
    gates, other = both.chunk(2, 1)
    return torch.nn.functional.silu(gates) * other

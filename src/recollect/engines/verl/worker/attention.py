"""Packed attention for verl's actor where `flash-attn` is not installed.

verl removes padding and hands a model one row of sequences back to back, separated by their
positions. This attends within each of them with the FlashAttention that torch itself brings, so
that no package without a wheel has to be built. Knows nothing of Recollect's own engine.
"""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from recollect.engines.verl.environment import PACKED
from recollect.errors import UserError


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    position_ids: torch.Tensor | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_other: Any,
) -> tuple[torch.Tensor, None]:
    """Attend causally within each sequence of a packed row; the signature is transformers'."""
    if softcap is not None or s_aux is not None or query.shape[0] != 1:
        raise UserError(
            f"packed attention does not cover {type(module).__name__} on this batch",
            "install flash-attn, or add model.use_remove_padding=False and"
            " +model.override_config.attn_implementation=sdpa after --",
        )
    starts = starts_of(position_ids, query.shape[2], query.device)
    window = (-1 if sliding_window is None else sliding_window - 1, 0)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    rows = [states[0].transpose(0, 1).contiguous() for states in (query, key, value)]  # (N, H, D)
    attended = _on_gpu if query.is_cuda else _by_sequence
    return attended(rows, starts, scale, window)[None], None


def starts_of(position_ids: torch.Tensor | None, length: int, device: torch.device) -> torch.Tensor:
    """Return where sequences begin, and the end of the last: (sequences + 1,)."""
    if position_ids is None:
        return torch.tensor([0, length], dtype=torch.int32, device=device)
    first = (position_ids.flatten() == 0).nonzero().flatten().to(torch.int32)
    end = torch.tensor([length], dtype=torch.int32, device=device)
    return torch.cat([first, end])


def _on_gpu(
    rows: list[torch.Tensor], starts: torch.Tensor, scale: float, window: tuple[int, int]
) -> torch.Tensor:
    """Take all sequences in one call of torch's FlashAttention."""
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = rows
    longest = int((starts[1:] - starts[:-1]).max())
    named = inspect.signature(varlen_attn).parameters
    more: dict[str, Any] = {"window_size": window} if "window_size" in named else {}
    if not more and window[0] < 0:
        more = {"is_causal": True}
    if query.shape[1] != key.shape[1]:
        if "enable_gqa" in named:
            more["enable_gqa"] = True
        else:
            times = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    found = varlen_attn(query, key, value, starts, starts, longest, longest, scale=scale, **more)
    assert isinstance(found, torch.Tensor)
    return found


def _by_sequence(
    rows: list[torch.Tensor], starts: torch.Tensor, scale: float, window: tuple[int, int]
) -> torch.Tensor:
    """Take one sequence after the other, where torch has no such kernel."""
    parts = []
    for begin, end in itertools.pairwise(starts.tolist()):
        query, key, value = (row[begin:end].transpose(0, 1) for row in rows)
        at = torch.arange(end - begin, device=query.device)
        seen = at[None] <= at[:, None]
        if window[0] >= 0:
            seen &= at[None] >= at[:, None] - window[0]
        grouped = query.shape[0] != key.shape[0]
        out = scaled_dot_product_attention(
            query[None], key[None], value[None], seen, scale=scale, enable_gqa=grouped
        )
        parts.append(out[0].transpose(0, 1))
    return torch.cat(parts)


def register() -> None:
    """Let transformers find it by name."""
    AttentionInterface.register(PACKED, torch.compiler.disable(attend))

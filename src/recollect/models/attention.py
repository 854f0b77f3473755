"""One attention function for every Hugging Face model; a plan says who sees whom.

transformers calls `attend` from inside each layer with queries and keys already positioned. All
tokens of a call are in one row, without padding; the plan that came with the call decides which
keys each query may see, and may keep keys between calls. So the trie packing of the trainer and the
cache of the sampler work on any model that uses transformers' attention interface, unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers import AttentionInterface

from recollect.errors import UserError

NAME = "recollect"


@dataclass(frozen=True)
class Heads:
    """What one layer asks of attention, beside queries, keys and values."""

    layer: int
    scaling: float
    window: int | None = None
    """Sliding window: a query at position p sees keys at positions above p - window."""
    softcap: float | None = None
    """Scores are squashed to softcap * tanh(score / softcap)."""


class AttentionPlan(Protocol):
    """Decide who sees whom in one forward pass over N tokens in one row."""

    def attend(
        self, heads: Heads, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """Take query (Hq, N, D), key and value (Hkv, N, D); return (N, Hq, Dv)."""


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    plan: AttentionPlan,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_other: Any,
) -> tuple[torch.Tensor, None]:
    """Hand a layer's attention to the plan; the signature is transformers'."""
    if s_aux is not None or not getattr(module, "is_causal", True):
        raise UserError(
            f"the embedded engine does not know the attention of {type(module).__name__}",
            "use a causal model without attention sinks, or the verl engine",
        )
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    heads = Heads(module.layer_idx, scaling, sliding_window, softcap)
    return plan.attend(heads, query[0], key[0], value[0])[None], None


# A plan is made for one call: compiled code that looked inside would be compiled for every call.
AttentionInterface.register(NAME, torch.compiler.disable(attend))


def masked_attention(
    heads: Heads,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
) -> torch.Tensor:
    """Attend in a batch: query (B, Hq, S, D), key and value (B, Hkv, L, D).

    The mask is bool, true where seen, and broadcasts to (B, 1, S, L); None is causal, S = L.
    """
    grouped = query.shape[1] != key.shape[1]
    if heads.softcap is None:
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, mask, is_causal=mask is None, scale=heads.scaling, enable_gqa=grouped
        )
    if grouped:
        times = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    scores = query @ key.transpose(-1, -2) * heads.scaling
    scores = heads.softcap * torch.tanh(scores / heads.softcap)
    if mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ value

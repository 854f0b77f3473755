"""Choose the in-process sampler that suits where a model is."""

from __future__ import annotations

from recollect.policies.local import LocalPolicy
from recollect.policies.paged import PagedPolicy, keys_of
from recollect.train.model import LoadedModel

Sampler = LocalPolicy | PagedPolicy

ROPES_THAT_WAIT = ("dynamic", "longrope")
"""Positions whose angles depend on the longest one: the host has to look at them."""


def open_sampler(model: LoadedModel, cache_gib: float, max_running: int | None = None) -> Sampler:
    """Sample with pages and recorded bursts on a GPU, with dense slots anywhere else."""
    room = int(cache_gib * 2**30)
    if model.device.type == "cuda" and can_be_paged(model):
        return PagedPolicy(model, max_running or 1024, cache_bytes=room)
    return LocalPolicy(model, max_running or 512, cache_bytes=room)


def can_be_paged(model: LoadedModel) -> bool:
    """Tell whether all layers keep keys and values alike, and a step can be recorded."""
    shapes = {tensor.shape for both in keys_of(model) for tensor in both}
    rope = getattr(model.network.config.get_text_config(), "rope_parameters", None) or {}
    return len(shapes) == 1 and rope.get("rope_type") not in ROPES_THAT_WAIT

"""Choose the in-process sampler that suits where a model is."""

from __future__ import annotations

from collections.abc import Callable

import torch

from recollect.errors import UserError, on_stderr
from recollect.models.model import LoadedModel
from recollect.models.tokenizer import first_line
from recollect.sampler.dense import LocalPolicy
from recollect.sampler.dense_cache import keys_of
from recollect.sampler.paged import DRAFTS, PagedPolicy
from recollect.sampler.serving import ServingPagedPolicy, ServingPolicy

Sampler = LocalPolicy | PagedPolicy

ROPES_THAT_WAIT = ("dynamic", "longrope")
"""Positions whose angles depend on the longest one: the host has to look at them."""


def open_sampler(
    model: LoadedModel,
    cache_gib: float,
    max_running: int | None = None,
    say: Callable[[str], None] = on_stderr,
    serving: bool = False,
    drafts: int = DRAFTS,
) -> Sampler:
    """Sample with pages and recorded bursts on a GPU, with dense slots anywhere else.

    `say` is called with a note if a GPU has to sample from the model the slow way. `serving` reads
    long prompts in pieces, so that nobody waits for somebody else's. A step on a GPU guesses
    `drafts` tokens of a sequence.
    """
    dense, with_pages = LocalPolicy, PagedPolicy
    if serving:
        dense, with_pages = ServingPolicy, ServingPagedPolicy
    room = int(cache_gib * 2**30)
    if model.device.type == "cuda":
        why = "its layers keep keys in different ways, or its positions need the host"
        if can_be_paged(model):
            running = max_running or 1024
            paged = with_pages(model, running, cache_bytes=room, drafts=drafts, say=say)
            try:
                paged.rehearse()
                return paged
            except UserError:
                raise
            except Exception as error:  # whatever a model does that a graph cannot hold
                why = first_line(error)
                del paged
                torch.cuda.empty_cache()
        say(f"sampling is slow: {type(model.network).__name__} cannot be recorded ({why})")
    return dense(model, max_running or 512, cache_bytes=room)


def can_be_paged(model: LoadedModel) -> bool:
    """Tell whether all layers keep keys and values alike, and a step can be recorded."""
    shapes = {tensor.shape for both in keys_of(model) for tensor in both}
    rope = getattr(model.network.config.get_text_config(), "rope_parameters", None) or {}
    return len(shapes) == 1 and rope.get("rope_type") not in ROPES_THAT_WAIT

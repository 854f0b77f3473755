"""Try fused layers, quick picks and shared keys where they will run, before they are relied on.

What fails, or is off by more than rounding, is not used; the sampler then works as it does without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from recollect.models.attention import Heads
from recollect.models.model import LoadedModel
from recollect.models.tokenizer import first_line
from recollect.models.transfer import on_device
from recollect.sampler.fused import FusedModel, fused
from recollect.sampler.paged_attention import PagedCache, TokenPlan
from recollect.sampler.pick import Way, pick
from recollect.sampler.prefixes import SharedRows, head_shape

HALF = torch.bfloat16
ROWS, PAGE = 21, 32
"""Sequences of a trial, a page each."""
OFF = 0.02
"""How far a layer may be off what its own code adds to a token; half precision rounds by 0.004."""


@dataclass(frozen=True)
class Tried:
    """What works here."""

    network: LoadedModel
    """The model to sample from."""
    quick: bool
    """Whether kernels pick tokens."""
    shares: bool
    """Whether keys that sequences share are read once."""
    notes: list[str]
    """Why the rest is left out."""


def tried(model: LoadedModel) -> Tried:
    """Try everything."""
    with on_device(model.device):
        network, layers = fused_or_own(model)
        quick, picks = quick_or_not(model.device)
        shares, keys = shares_or_not(model)
    return Tried(network, quick, shares, [note for note in (layers, picks, keys) if note])


def fused_or_own(model: LoadedModel) -> tuple[LoadedModel, str]:
    """Return the model to sample from, with fused layers where they work, else a note on why."""
    ours: FusedModel | None = None

    def trial() -> str:  # in which the GPU's memory may end: what was joined until then is sound
        nonlocal ours
        ours = fused(model)
        return layers_off(ours) if ours else ""

    why = _failure(trial)
    if why or ours is None:
        return model, f"layers are not fused ({why})" if why else ""
    for layer in ours.body.layers:
        layer.__dict__.pop("forward", None)  # a layer that is to be compiled is hardly called now
    return ours, ""


def quick_or_not(device: torch.device) -> tuple[bool, str]:
    """Return whether tokens can be picked quickly, and why not."""
    why = _failure(lambda: picks_off(device))
    return not why, f"tokens are not picked by kernels ({why})" if why else ""


def shares_or_not(model: LoadedModel) -> tuple[bool, str]:
    """Return whether keys that sequences share can be read once, and why not."""
    why = _failure(lambda: shares_off(model))
    return not why, f"siblings' keys are read for each ({why})" if why else ""


def _failure(trial: Callable[[], str]) -> str:
    try:
        return trial()
    except Exception as error:  # a kernel that a compiler or a GPU does not take
        return first_line(error)


@torch.inference_mode()
def layers_off(ours: FusedModel) -> str:
    """Give every layer random numbers, fused and as it is; say which is off, if one is."""
    with _adapters_that_add(ours):
        return _layers_off(ours)


@contextmanager
def _adapters_that_add(ours: FusedModel) -> Iterator[None]:
    """Fill adapters with random numbers for a while: a new one adds nothing, right or wrong."""
    numbers = torch.Generator().manual_seed(1)
    products = (p for own in ours.layers for p in (own.qkv, own.out, own.gate_up, own.down))
    weights = [adapter.weight for product in products for adapter in product.adapters]
    kept = [weight.clone() for weight in weights]
    try:
        for weight in weights:
            weight.copy_(0.02 * torch.randn(weight.shape, generator=numbers))
        yield
    finally:
        for weight, own in zip(weights, kept, strict=True):
            weight.copy_(own)


def _layers_off(ours: FusedModel) -> str:
    numbers, device = torch.Generator().manual_seed(0), ours.device
    caches = [_cache(ours) for _ in range(2)]
    pages = torch.arange(ROWS, device=device)
    lengths = pages * (PAGE - 1) // (ROWS - 1)
    plans = [TokenPlan(cache, pages.int(), pages, lengths) for cache in caches]
    weight = ours.body.embed_tokens.weight
    with ours.autocast:
        angles = ours.angles(weight[:1], lengths)
    for number, (fused_layer, layer) in enumerate(zip(ours.layers, ours.body.layers, strict=True)):
        given = torch.randn(ROWS, weight.shape[1], generator=numbers).to(device, weight.dtype)
        past = torch.randn(caches[0].table[number].shape, generator=numbers)
        for cache in caches:
            cache.table[number] = past
        with ours.autocast:
            own = _own(layer, given, lengths, angles, plans[0])
            found = given.clone()
            added = fused_layer(found, None, angles, plans[1])
            found = found + added
        stored = [plan.cache.table[number][:, plan.into] for plan in plans]
        for off in (_off(found, own, given), _off(stored[1], stored[0], 0)):
            if not off <= 1:  # not a number is off, too
                return f"layer {number} is off by {off:.2g} times what rounding may cost"
    return ""


def _cache(ours: FusedModel) -> PagedCache:
    keys: Any = ours.body.layers[0].self_attn.k_proj
    width = ours.body.layers[0].self_attn.head_dim
    shape = (keys.out_features // width, 1, width)
    like = torch.empty(shape, dtype=keys.weight.dtype, device=ours.device)
    return PagedCache(len(ours.layers), like, ROWS, PAGE)


def _own(layer: Any, given: torch.Tensor, positions: torch.Tensor, angles: Any, plan: Any) -> Any:
    """Run a layer's own code, not what may have been compiled from it."""
    angles = tuple(each[None] for each in angles)
    positions = positions[None]
    return type(layer).forward(
        layer, given[None], position_ids=positions, position_embeddings=angles, plan=plan
    )[0]


def _off(found: torch.Tensor, expected: torch.Tensor, before: torch.Tensor | int) -> float:
    """Return by how many times what is allowed numbers differ, measured by how they changed."""
    rounding = torch.finfo(expected.dtype).eps
    off, size = (found.float() - expected.float()).norm(), expected.float().norm()
    return float(off / (OFF * (expected.float() - before).norm() + rounding * size))


@torch.inference_mode()
def shares_off(model: LoadedModel) -> str:
    """Attend to random keys in both ways; say if they differ."""
    numbers, device = torch.Generator().manual_seed(0), model.device
    q_heads, kv_heads, width = head_shape(model.network.config)
    cache = PagedCache(
        1, torch.empty(kv_heads, 1, width, dtype=HALF, device=device), ROWS + 8, PAGE
    )
    cache.table.copy_(torch.randn(cache.table.shape, generator=numbers))
    query = torch.randn(ROWS, q_heads, width, generator=numbers).to(device, HALF)
    own = torch.arange(8, ROWS + 8)[:, None]  # after eight pages that are everybody's
    pages = torch.cat((torch.arange(8).expand(ROWS, 8), own), 1)
    lengths = torch.arange(ROWS) * (PAGE - 1) // (ROWS - 1) + 8 * PAGE
    rows = SharedRows(ROWS, q_heads // kv_heads, device)
    found = rows.find(np.array([0, *[8 * PAGE] * (ROWS - 4), 0, 0, 0]), lengths.numpy())
    if found is None:
        return f"with {q_heads // kv_heads} queries to a head, a tile has no room for siblings"
    rows.load(found)
    plan = TokenPlan(
        cache,
        pages.int().flatten().to(device),
        (torch.arange(ROWS) * pages.shape[1]).to(device),
        lengths.to(device),
    )
    heads = Heads(0, width**-0.5)
    both = [replace(plan, shared=own).look(heads, query) for own in (None, rows.of(ROWS))]
    off = _off(both[1], both[0], 0)
    return "" if off <= 1 else f"attention is off by {off:.2g} times what rounding may cost"


@torch.inference_mode()
def picks_off(device: torch.device) -> str:
    """Pick tokens from random logits in both ways; say what is off, if anything is."""
    numbers = torch.Generator().manual_seed(0)
    logits = (4 * torch.randn(64, 5001, generator=numbers)).to(device, HALF)
    warmth, uniform = torch.rand(2, 64, generator=numbers, dtype=torch.float64).to(device)
    warmth += 0.5
    ways: tuple[Way, ...] = ("drawn", "greedy")
    for way in ways:
        tokens, logprobs = pick(logits, warmth, warmth, uniform, way, quick=True)
        expected, expected_logprobs = pick(logits, warmth, warmth, uniform, way)
        same, near = tokens == expected, (logprobs - expected_logprobs).abs() < 1e-3
        # Of tokens that are equally likely any may be first; rounding may decide one draw.
        wrong = ~near if way == "greedy" else ~same
        if int(wrong.sum()) > 1 or not bool(near[same].all()):
            return f"tokens that are {way} are others"
    return ""

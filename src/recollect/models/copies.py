"""Copies of a model's weights for a sampler: as they were at one moment, or in half precision."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers.modeling_layers import GradientCheckpointingLayer

from recollect.models.model import LoadedModel


@dataclass(frozen=True)
class Snapshot:
    """A copy of a model; weights that are not trained are shared with it."""

    model: LoadedModel
    """The copy: nothing of it changes but by `refresh`."""
    _trained: LoadedModel

    @classmethod
    def of(cls, trained: LoadedModel) -> Snapshot:
        """Copy a model."""
        fixed = [p for p in trained.network.parameters() if not p.requires_grad]
        memo: dict[int, Any] = {id(parameter): parameter for parameter in fixed}
        network = copy.deepcopy(trained.network, memo).requires_grad_(False)
        return cls(replace(trained, network=network), trained)

    @torch.no_grad()
    def refresh(self) -> None:
        """Take the weights as they are now."""
        own = self.model.network.named_parameters()
        theirs = dict(self._trained.network.named_parameters())
        for name, parameter in own:
            if parameter is not theirs[name]:
                parameter.copy_(theirs[name])


@dataclass
class SamplerCopy:
    """The same network with every matrix in the type that autocast would turn it into.

    What it computes is what the trained network computes under autocast, bit for bit, without
    casting each weight for each token. The weights are those of the last `refresh`.
    """

    model: LoadedModel
    _pairs: list[tuple[torch.Tensor, torch.Tensor]]

    @classmethod
    def of(cls, model: LoadedModel) -> SamplerCopy:
        """Copy a model that computes in half precision."""
        network: Any = model.network
        memo: dict[int, Any] = {}
        for module in network.modules():
            half = isinstance(module, torch.nn.Linear)
            for parameter in module.parameters(recurse=False):
                # A head that is also the embedding stays whole: an embedding is not a product.
                if not half or id(parameter) not in memo:
                    memo[id(parameter)] = _copied(parameter, half)
        pairs = [(memo[id(p)], p) for p in network.parameters()]
        twin = copy.deepcopy(network, memo)
        head, own = twin.get_output_embeddings(), network.get_output_embeddings()
        if head.weight.dtype != torch.bfloat16:
            head.weight = _copied(own.weight, True)
            pairs.append((head.weight, own.weight))
        if model.compile:
            for layer in twin.modules():
                if isinstance(layer, GradientCheckpointingLayer):
                    layer.forward = torch.compile(layer.forward, dynamic=True)
        return cls(replace(model, network=twin.requires_grad_(False)), pairs)

    @torch.no_grad()
    def refresh(self) -> None:
        """Take the weights as they are now."""
        torch._foreach_copy_([a for a, _ in self._pairs], [b for _, b in self._pairs])


def _copied(parameter: torch.Tensor, half: bool) -> torch.nn.Parameter:
    dtype = torch.bfloat16 if half else parameter.dtype
    return torch.nn.Parameter(parameter.detach().to(dtype, copy=True), requires_grad=False)

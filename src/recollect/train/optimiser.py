"""The optimiser of one model's trained weights: its rate, the clipping, and what a resume needs."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from recollect.train.host_adam import HostAdamW
from recollect.train.model import LoadedModel
from recollect.train.settings import OptimConfig


class Optimiser:
    """AdamW with linear warm-up over the weights of a model that are trained."""

    def __init__(self, model: LoadedModel, config: OptimConfig) -> None:
        self.model = model
        self.config = config
        self.updates = 0
        """Steps so far, those without effect included: they decide the learning rate."""
        adam: Any = HostAdamW if config.offload else partial(torch.optim.AdamW, fused=True)
        self.adam = adam(
            model.trainable_parameters(),
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
        )

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        return learning_rate(self.config, self.updates)

    def step(self) -> float:
        """Clip the gradient and apply it, unless it is not finite; return its length."""
        parameters = self.model.trainable_parameters()
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self.config.clip_norm))
        if math.isfinite(norm):
            for group in self.adam.param_groups:
                group["lr"] = self.rate
            self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        self.updates += 1
        return norm

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return what a resumed run needs beside the weights: tensors and plain numbers."""
        tensors = {
            f"{name}/{key}": value
            for name, parameter in self._named_parameters()
            for key, value in self.adam.state.get(parameter, {}).items()
        }
        return tensors, {"updates": self.updates}

    def restore(self, tensors: dict[str, torch.Tensor], counters: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        parameters = dict(self._named_parameters())
        self.adam.state.clear()
        for entry, tensor in tensors.items():
            name, _, key = entry.rpartition("/")
            self.adam.state[parameters[name]][key] = tensor
        self.updates = int(counters["updates"])

    def _named_parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        named = self.model.network.named_parameters()
        return [(name, parameter) for name, parameter in named if parameter.requires_grad]


def learning_rate(optim: OptimConfig, update: int) -> float:
    """Return the rate of an optimiser step, counted from 0: linear up to `lr`, then constant."""
    return optim.lr * min(1.0, (update + 1) / max(optim.warmup_steps, 1))

"""The optimiser of one model's trained weights: its rate, the clipping, and what a resume needs."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from recollect.config.engine import OptimConfig
from recollect.models.model import LoadedModel
from recollect.train.adam import RoamingAdamW

LARGE = 1 << 20
"""Numbers from which a kernel of our own is worth its launch."""


class Optimiser:
    """AdamW with linear warm-up over the weights of a model that are trained."""

    def __init__(self, model: LoadedModel, config: OptimConfig) -> None:
        self.model = model
        self.config = config
        self.updates = 0
        """Steps so far, those without effect included: they decide the learning rate."""
        parameters = model.trainable_parameters()
        half = [p for p in parameters if p.dtype != torch.float32]
        adam: Any = partial(torch.optim.AdamW, fused=True)
        if config.offload or half:
            adam = partial(RoamingAdamW, on_host=config.offload)
        self.adam = adam(
            parameters,
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
        )
        self._sums: dict[torch.nn.Parameter, torch.Tensor] = {}
        for parameter in half:
            parameter.register_post_accumulate_grad_hook(self._add)

    def _add(self, parameter: torch.Tensor) -> None:
        """Add up what micro-batches gave in float32: in half precision small shares vanish."""
        assert isinstance(parameter, torch.nn.Parameter) and parameter.grad is not None
        if parameter not in self._sums:
            plain = torch.contiguous_format
            self._sums[parameter] = parameter.grad.to(torch.float32, memory_format=plain)
        elif parameter.is_cuda and parameter.numel() >= LARGE:
            from recollect.models import kernels  # a CPU's torch comes without what makes them

            kernels.add(self._sums[parameter], parameter.grad)
        else:
            self._sums[parameter] += parameter.grad
        parameter.grad = None

    @property
    def gradients(self) -> dict[torch.nn.Parameter, torch.Tensor]:
        """What was added up since the last step."""
        own = {p: p.grad for p in self.model.trainable_parameters() if p.grad is not None}
        return own | self._sums

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        return learning_rate(self.config, self.updates)

    def step(self) -> float:
        """Clip the gradient and apply it, unless it is not finite; return its length."""
        gradients = self.gradients
        norm = clip(list(gradients.values()), self.config.clip_norm)
        if math.isfinite(norm):
            for group in self.adam.param_groups:
                group["lr"] = self.rate
            if isinstance(self.adam, RoamingAdamW):
                self.adam.apply(gradients)
            else:
                self.adam.step()
        self.drop()
        self.updates += 1
        return norm

    def drop(self) -> None:
        """Forget the gradient."""
        self.adam.zero_grad(set_to_none=True)
        self._sums.clear()

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return what a resumed run needs beside the weights: tensors and plain numbers."""
        tensors = {
            f"{name}/{key}": value
            for name, parameter in self._named_parameters()
            for key, value in self.adam.state.get(parameter, {}).items()
        }
        return tensors, {"updates": self.updates}

    def restore(self, tensors: dict[str, torch.Tensor], counters: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
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


def clip(gradients: list[torch.Tensor], longest: float) -> float:
    """Shorten a gradient that is too long, in place; return how long it was."""
    norm = torch.nn.utils.get_total_norm(gradients)
    if gradients:
        torch._foreach_mul_(gradients, torch.clamp(longest / (norm + 1e-6), max=1.0))
    return float(norm)

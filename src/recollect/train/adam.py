"""AdamW that keeps what it remembers of a weight wherever there is room, and always in float32.

Gives what torch's AdamW gives. In the host's memory the averages, twice as much as the weights,
travel to the device and back while other weights are updated. Weights in half precision come with a
float32 original that is kept the same way: updates are far smaller than their last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.optim.adamw import adamw


class RoamingAdamW(torch.optim.Optimizer):
    """AdamW, with `exp_avg`, `exp_avg_sq` and the `original` of a half weight on host or device."""

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        on_host: bool = True,
    ) -> None:
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self.on_host = on_host

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update every weight that has a gradient."""
        own = {p: p.grad for group in self.param_groups for p in group["params"]}
        self.apply({p: grad for p, grad in own.items() if grad is not None})

    @torch.no_grad()
    def apply(self, gradients: Mapping[torch.nn.Parameter, torch.Tensor]) -> None:
        """Update weights by gradients that may be more precise than the weights are."""
        for group in self.param_groups:
            moved = [p for p in group["params"] if p in gradients]
            for device in {p.device for p in moved}:
                self._apply([p for p in moved if p.device == device], gradients, group)

    def _apply(
        self,
        moved: list[torch.nn.Parameter],
        gradients: Mapping[torch.nn.Parameter, torch.Tensor],
        group: dict[str, Any],
    ) -> None:
        lanes = Lanes(moved[0].device, self.on_host)
        coming = self._fetch(moved[0], lanes)
        for i, parameter in enumerate(moved):
            first, second, *originals = here = lanes.arrived(coming)
            if i + 1 < len(moved):  # on its way while this one is updated
                coming = self._fetch(moved[i + 1], lanes)
            weight = originals[0] if originals else parameter
            adamw(
                [weight], [gradients[parameter]], [first], [second], [],
                [self.state[parameter]["step"]],
                lr=group["lr"], beta1=group["betas"][0], beta2=group["betas"][1], eps=group["eps"],
                weight_decay=group["weight_decay"], amsgrad=False, maximize=False, foreach=False,
            )  # fmt: skip
            if originals:
                parameter.copy_(weight)
            lanes.send(here, self._kept(parameter))
        lanes.wait()

    def _fetch(self, parameter: torch.nn.Parameter, lanes: Lanes) -> list[torch.Tensor]:
        state = self.state[parameter]
        home = torch.device("cpu") if self.on_host else parameter.device
        if "step" not in state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros(parameter.shape, dtype=torch.float32, device=home)
            if parameter.dtype != torch.float32:
                state["original"] = parameter.detach().to(home, torch.float32)
        for name, tensor in state.items():  # a checkpoint brings them all to the device
            state[name] = tensor.to("cpu" if name == "step" else home)
        return lanes.fetch(self._kept(parameter))

    def _kept(self, parameter: torch.nn.Parameter) -> list[torch.Tensor]:
        state = self.state[parameter]
        names = ("exp_avg", "exp_avg_sq", "original")
        return [state[name] for name in names if name in state]


class Lanes:
    """Copies to and from a device, each in a stream of its own; none if nothing has to travel."""

    def __init__(self, device: torch.device, on_host: bool) -> None:
        self._device = device
        self._there = self._back = None
        self._travel = on_host and device.type == "cuda"
        if self._travel:
            self._there, self._back = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def pin(self, tensor: torch.Tensor) -> None:
        """Make a host tensor's copies fast; torch's own pinned memory rounds sizes up to double."""
        if not tensor.is_pinned():
            size = tensor.numel() * tensor.element_size()
            torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), size, 0)

    def fetch(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Begin to copy tensors to the device."""
        if not self._travel:
            return tensors
        for tensor in tensors:
            self.pin(tensor)
        with torch.cuda.stream(self._there):
            return [tensor.to(self._device, non_blocking=True, copy=True) for tensor in tensors]

    def arrived(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Let what is computed next wait for them."""
        if self._there:
            main = torch.cuda.current_stream(self._device)
            main.wait_stream(self._there)
            for tensor in tensors:
                tensor.record_stream(main)
        return tensors

    def send(self, tensors: list[torch.Tensor], hosts: list[torch.Tensor]) -> None:
        """Copy tensors back once what was begun is done."""
        if self._back:
            self._back.wait_stream(torch.cuda.current_stream(self._device))
            for tensor in tensors:
                tensor.record_stream(self._back)
            with torch.cuda.stream(self._back):
                for tensor, host in zip(tensors, hosts, strict=True):
                    host.copy_(tensor, non_blocking=True)

    def wait(self) -> None:
        """Wait until everything is back."""
        if self._back:
            self._back.synchronize()

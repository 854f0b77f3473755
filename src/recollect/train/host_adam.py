"""AdamW whose averages stay in the host's memory and visit the device one weight at a time.

Gives what torch's AdamW gives. Weights and gradients stay on the device; the averages, twice as
much, travel there and back while other weights are updated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim.adamw import adamw


class HostAdamW(torch.optim.Optimizer):
    """AdamW, with `exp_avg` and `exp_avg_sq` on the host."""

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update every weight that has a gradient."""
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            for device in {p.device for p in moved}:
                self._step([p for p in moved if p.device == device], group)

    def _step(self, moved: list[torch.nn.Parameter], group: dict[str, Any]) -> None:
        lanes = Lanes(moved[0].device)
        coming = self._fetch(moved[0], lanes)
        for i, parameter in enumerate(moved):
            averages = lanes.arrived(coming)
            if i + 1 < len(moved):  # on its way while this one is updated
                coming = self._fetch(moved[i + 1], lanes)
            state, gradient = self.state[parameter], parameter.grad
            assert gradient is not None  # only such weights are moved
            adamw(
                [parameter], [gradient], [averages[0]], [averages[1]], [], [state["step"]],
                lr=group["lr"], beta1=group["betas"][0], beta2=group["betas"][1], eps=group["eps"],
                weight_decay=group["weight_decay"], amsgrad=False, maximize=False, foreach=False,
            )  # fmt: skip
            lanes.send(averages, [state["exp_avg"], state["exp_avg_sq"]])
        lanes.wait()

    def _fetch(self, parameter: torch.nn.Parameter, lanes: Lanes) -> list[torch.Tensor]:
        state = self.state[parameter]
        if "step" not in state:
            state["step"] = torch.zeros((), dtype=torch.float32)
        for name in ("exp_avg", "exp_avg_sq"):
            if name not in state:
                state[name] = torch.zeros(parameter.shape, dtype=parameter.dtype)
            lanes.pin(state[name])
        return lanes.fetch([state["exp_avg"], state["exp_avg_sq"]])


class Lanes:
    """Copies to and from a device, each in a stream of its own; plain copies on the CPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._there = self._back = None
        if device.type == "cuda":
            self._there, self._back = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def pin(self, tensor: torch.Tensor) -> None:
        """Make a host tensor's copies fast; torch's own pinned memory rounds sizes up to double."""
        if self._device.type == "cuda" and not tensor.is_pinned():
            size = tensor.numel() * tensor.element_size()
            torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), size, 0)

    def fetch(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Begin to copy tensors to the device."""
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

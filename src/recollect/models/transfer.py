"""Arrays on their way to a device, and work that is done on it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch


def put(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """Begin to copy an array to the device, without waiting for what that is doing."""
    tensor = torch.from_numpy(values)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Let graphs and kernels go to a GPU that may not be the thread's."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()

"""Arrays on their way to a device."""

from __future__ import annotations

import numpy as np
import torch


def put(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """Begin to copy an array to the device, without waiting for what that is doing."""
    tensor = torch.from_numpy(values)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)

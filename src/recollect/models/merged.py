"""A model's weights as others load them: under plain names, with every adapter merged in."""

from __future__ import annotations

import torch

from recollect.models.model import LoadedModel


def merged_weights(model: LoadedModel) -> dict[str, torch.Tensor]:
    """Return the weights under their plain names, with every adapter's product added."""
    deltas = {
        f"{name}.weight": module.get_delta_weight("default").detach()
        for name, module in model.network.named_modules()
        if hasattr(module, "get_delta_weight")
    }
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in model.network.state_dict().items():
        if ".lora_" in name:
            continue
        plain = name.replace(".base_layer.", ".")
        weights[plain] = tensor + deltas[plain] if plain in deltas else tensor
    return weights

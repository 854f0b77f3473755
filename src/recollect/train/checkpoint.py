"""What a checkpoint holds (weights, optimiser, counters: safetensors and JSON), and the export.

Knows nothing of run folders: it writes into and reads from the folder it is given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from recollect.errors import UserError
from recollect.train.model import LoadedModel
from recollect.train.trainer import Trainer

WEIGHTS, OPTIMISER, COUNTERS = "weights.safetensors", "optimiser.safetensors", "trainer.json"


def save(folder: Path, model: LoadedModel, trainer: Trainer) -> None:
    """Write all that a resumed run needs to go on bit for bit."""
    save_file(_trained_weights(model), folder / WEIGHTS)
    tensors, counters = trainer.state()
    save_file(tensors, folder / OPTIMISER)
    (folder / COUNTERS).write_text(json.dumps(counters, indent=1, sort_keys=True))


def load(folder: Path, model: LoadedModel, trainer: Trainer) -> None:
    """Read a checkpoint back into a freshly loaded model and its trainer."""
    load_weights(folder, model)
    counters: dict[str, Any] = json.loads((folder / COUNTERS).read_text())
    trainer.restore(load_file(folder / OPTIMISER, device=str(model.device)), counters)


def load_weights(folder: Path, model: LoadedModel) -> None:
    """Read a checkpoint's weights into a freshly loaded model."""
    weights = load_file(folder / WEIGHTS, device=str(model.device))
    own = _trained_weights(model)
    if _shapes(weights) != _shapes(own):
        raise UserError(
            f"the checkpoint {folder} belongs to another model, or to other LoRA settings",
            "give the --model settings it was made with, or name another checkpoint",
        )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])


def export(folder: Path, model: LoadedModel) -> None:
    """Write a folder that transformers loads and vLLM serves; LoRA is merged into the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    model.network.save_pretrained(folder, state_dict=_merged_weights(model))
    model.tokenizer.hf.save_pretrained(folder)


def _shapes(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _trained_weights(model: LoadedModel) -> dict[str, torch.Tensor]:
    """Return the trained parameters by name; tied weights appear once."""
    return {n: p.detach() for n, p in model.network.named_parameters() if p.requires_grad}


def _merged_weights(model: LoadedModel) -> dict[str, torch.Tensor]:
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

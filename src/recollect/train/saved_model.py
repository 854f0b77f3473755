"""What a model leaves in a checkpoint (weights, optimiser, counters), and the exported model.

Knows nothing of run folders: it writes into and reads from the folder it is given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file, save_file

from recollect import files as disk
from recollect.errors import UserError
from recollect.models.merged import merged_weights
from recollect.models.model import LoadedModel
from recollect.train.optimiser import Optimiser

WEIGHTS, OPTIMISER, COUNTERS = "weights.safetensors", "optimiser.safetensors", "trainer.json"
CRITIC = "critic-"
"""What the names of a critic's files begin with."""


class Trained(Protocol):
    """An optimiser: it moves a model's weights."""

    optimiser: Optimiser


def save(folder: Path, model: LoadedModel, trainer: Trained, prefix: str = "") -> None:
    """Write all of a model that a resumed run needs to continue bit for bit."""
    save_file(_trained_weights(model), folder / f"{prefix}{WEIGHTS}")
    tensors, counters = trainer.optimiser.state()
    save_file(tensors, folder / f"{prefix}{OPTIMISER}")
    counted = json.dumps(counters, indent=1, sort_keys=True)
    (folder / f"{prefix}{COUNTERS}").write_text(counted)


def load(folder: Path, model: LoadedModel, trainer: Trained, prefix: str = "") -> None:
    """Read a checkpoint back into a freshly loaded model and its trainer."""
    load_weights(folder, model, prefix)
    counters: dict[str, Any] = json.loads((folder / f"{prefix}{COUNTERS}").read_text())
    tensors = load_file(folder / f"{prefix}{OPTIMISER}", device=str(model.device))
    trainer.optimiser.restore(tensors, counters)


def load_weights(folder: Path, model: LoadedModel, prefix: str = "") -> None:
    """Read a checkpoint's weights into a freshly loaded model."""
    if not (folder / f"{prefix}{WEIGHTS}").exists():
        raise UserError(
            f"the checkpoint {folder} holds no {prefix}{WEIGHTS}",
            "continue with the --advantage it was made with, or name another checkpoint",
        )
    weights = load_file(folder / f"{prefix}{WEIGHTS}", device=str(model.device))
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
    """Write a folder that transformers and vLLM load, whole or not at all; LoRA is merged in."""
    temporary = folder.with_name(f"{disk.TEMPORARY}{folder.name}")
    with disk.refusals(folder):
        try:
            disk.remove(temporary)
            temporary.mkdir(parents=True)
            model.network.save_pretrained(temporary, state_dict=merged_weights(model))
            model.tokenizer.hf.save_pretrained(temporary)
            for path in temporary.iterdir():
                disk.fsync(path)
            disk.remove(folder)
            temporary.rename(folder)
        except BaseException:
            with suppress(OSError):  # the first error is the one to report
                disk.remove(temporary)
            raise
        disk.fsync(folder.parent)


def _shapes(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _trained_weights(model: LoadedModel) -> dict[str, torch.Tensor]:
    """Return the trained parameters by name; tied weights appear once."""
    return {n: p.detach() for n, p in model.network.named_parameters() if p.requires_grad}

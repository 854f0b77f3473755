"""From the shards of an FSDP checkpoint to a folder that transformers loads and vLLM serves.

In the precision that was trained in: verl's own merger rounds everything to bfloat16. Loads tensors
and how they were cut, and nothing else that a pickle could hold. Knows nothing of verl or Ray.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from transformers import AutoConfig, AutoModelForCausalLM

from recollect import files as disk
from recollect.errors import UserError
from recollect.files import loads

LATEST = "latest_checkpointed_iteration.txt"
KNOWN: list[Any] = [DTensor, DTensorSpec, TensorMeta, DeviceMesh, Shard, Replicate]
"""How a tensor was cut: all that a checkpoint may hold beside tensors and plain numbers."""


def export(checkpoints: Path, target: Path, alpha: float | None = None) -> Path | None:
    """Merge the newest checkpoint of a run; None without a checkpoint."""
    if not (checkpoints / LATEST).exists():
        return None
    newest = f"global_step_{(checkpoints / LATEST).read_text().strip()}"
    return merge(checkpoints / newest, target, alpha)


def merge(checkpoint: Path, target: Path, alpha: float | None = None) -> Path:
    """Write a checkpoint (`global_step_N`, or its `actor`) as a model folder.

    `alpha` is that of the adapters, if it has some: verl writes it nowhere.
    """
    actor = checkpoint / "actor" if (checkpoint / "actor").is_dir() else checkpoint
    try:
        ranks = int(loads((actor / "fsdp_config.json").read_bytes())["world_size"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{checkpoint} is not an FSDP checkpoint of verl ({error})",
            "name a folder such as RUN/checkpoints/global_step_20",
        ) from None
    weights = joined([load_shard(actor, ranks, rank) for rank in range(ranks)])
    weights = without_adapters(weights, alpha)
    temporary = target.with_name(disk.TEMPORARY + target.name)
    disk.remove(temporary)
    shutil.copytree(actor / "huggingface", temporary)  # configuration and tokenizer
    config = AutoConfig.from_pretrained(temporary, local_files_only=True, trust_remote_code=False)
    config.dtype = next(iter(weights.values())).dtype
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    if config.tie_word_embeddings:  # FSDP cuts the head as well; a tied one is the embedding
        weights.pop("lm_head.weight", None)
    model.save_pretrained(temporary, state_dict=weights)
    disk.remove(target)
    temporary.rename(target)
    return target


def load_shard(actor: Path, ranks: int, rank: int) -> dict[str, torch.Tensor]:
    """Read the weights that one process saved."""
    path = actor / f"model_world_size_{ranks}_rank_{rank}.pt"
    with torch.serialization.safe_globals(KNOWN):
        shard: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return shard


def joined(shards: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Put every tensor together from the processes' parts of it, in the order of their ranks."""
    return {name: _join(name, [shard[name] for shard in shards]) for name in shards[0]}


def _join(name: str, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    first = parts[0]
    if not isinstance(first, DTensor):  # each process has the whole of it
        return first.detach().clone()
    cuts = [place.dim for place in first.placements if isinstance(place, Shard)]
    local = [part._local_tensor for part in parts if isinstance(part, DTensor)]
    if not cuts:
        return local[0].detach().clone()
    if len(first.placements) > 1:
        # Replicated over the first axis of the mesh: one row of processes has all the parts.
        local = local[: first.device_mesh.shape[-1]]
    whole = torch.cat(local, dim=cuts[0])
    if len(cuts) != 1 or whole.shape != first.shape:
        raise ValueError(f"{name} is cut in a way that is not known: {first.placements}")
    return whole


def without_adapters(
    weights: dict[str, torch.Tensor], alpha: float | None
) -> dict[str, torch.Tensor]:
    """Add every adapter's product to the weight that it adapts; plain weights stay."""
    if not any(".lora_A." in name for name in weights):
        return weights
    if alpha is None:
        raise UserError(
            "the checkpoint has adapters, and does not say with which alpha they were trained",
            "name it: the run's model.lora.alpha",
        )
    merged = {}
    for name, tensor in weights.items():
        if ".lora_" in name:
            continue
        plain = name.replace(".base_layer.", ".").removeprefix("base_model.model.")
        stem = name.removesuffix(".base_layer.weight")
        if f"{stem}.lora_A.default.weight" in weights:
            a, b = (weights[f"{stem}.lora_{x}.default.weight"] for x in "AB")
            tensor = tensor + alpha / len(a) * (b.to(tensor.dtype) @ a.to(tensor.dtype))
        merged[plain] = tensor
    return merged

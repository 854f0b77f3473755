"""What a run asks of every GPU: an estimate on paper, before a cluster is booked.

P weights, L layers, h hidden size, f width of the feed-forward part, V vocabulary; S GPUs share one
copy (`fsdp_size`, or all); T tokens of a micro-batch (`ppo_max_token_len_per_gpu`). In bytes:

    weights        4 P / S                  verl keeps them in 32 bits; with LoRA 2 P / S
    gradients      4 Q / S                  Q = P, or the adapters' weights
    optimiser      8 Q / S                  AdamW's two averages; 0 with offload_policy
    gathered       2 (2 P_layer + V h)      two layers and the output layer, in 16 bits
    activations    2 T h L + 2 T (10 h + 4 f)   kept between layers, and inside the one at work;
                                            without recomputation 2 T L (10 h + 4 f)
    logits         4 T V                    16 bits, and as much for their gradient
    sampler        u M                      u = gpu_memory_utilization, M the GPU's memory
      its weights  2 P / TP
      its cache    u M - 2 P / TP - 2 GiB   2 L kv_heads head_size 2 / TP bytes for every token

An update holds the first six; the sampler sleeps meanwhile, or with `free_cache_engine` False stays
beside them with its cache. Sampling holds
the sampler and what is not offloaded: `param_offload` and `optimizer_offload` move weights and
averages to the host between updates, never during them. The reference model lives on the host: verl
forces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recollect.engines.verl.launch.shapes import Shape
from recollect.engines.verl.launch.translate import ACTOR, MODEL, ROLLOUT

GIB = 2**30
OVERHEAD = 2 * GIB
"""What a server needs beside weights and cache: its own activations and captured graphs."""


@dataclass(frozen=True)
class Demand:
    """Bytes on one GPU."""

    weights: float
    gradients: float
    optimiser: float
    gathered: float
    activations: float
    logits: float
    sampler: float
    """Weights and cache of the server together."""
    cache: float
    """The sampler's memory that is left for keys and values; negative if the weights do not fit."""
    cached_tokens: int
    """Tokens that the cache of one server holds."""
    resident: float
    """What training leaves on the GPU while it samples."""
    gpus: int
    shards: int
    held_sampler: float = 0.0
    """The sampler's memory that stays on the GPU during an update (`free_cache_engine` False)."""

    @property
    def update(self) -> float:
        """The most that an update holds at once."""
        parts = (self.weights, self.gradients, self.optimiser)
        work = self.gathered + self.activations + self.logits
        return sum(parts) + work + self.held_sampler

    @property
    def sampling(self) -> float:
        """The most that sampling holds at once."""
        return self.sampler + self.resident


def demand(shape: Shape, keys: Mapping[str, Any], gpu_bytes: float) -> Demand:
    """Estimate what the run with these keys of verl needs on a GPU of that size."""
    gpus = int(keys.get("trainer.nnodes", 1)) * int(keys.get("trainer.n_gpus_per_node", 8))
    size = int(keys.get(f"{ACTOR}.fsdp_config.fsdp_size", -1))
    shards = min(size, gpus) if size > 0 else gpus
    rank = int(keys.get(f"{MODEL}.lora_rank", 0))
    trained = adapters(shape, rank) if rank else shape.parameters
    held = not keys.get(f"{ACTOR}.fsdp_config.offload_policy", False)
    weights = (2 if rank else 4) * shape.parameters / shards * held
    averages = 8 * trained / shards * held
    tokens = int(keys.get(f"{ACTOR}.ppo_max_token_len_per_gpu", 16384))
    tokens //= int(keys.get(f"{ACTOR}.ulysses_sequence_parallel_size", 1))
    inside = 2 * tokens * (10 * shape.hidden + 4 * shape.inner)
    again = keys.get(f"{MODEL}.enable_gradient_checkpointing", True)
    parallel = int(keys.get(f"{ROLLOUT}.tensor_model_parallel_size", 1))
    sampler = float(keys.get(f"{ROLLOUT}.gpu_memory_utilization", 0.5)) * gpu_bytes
    cache = sampler - 2 * shape.parameters / parallel - OVERHEAD
    kept_weights = not keys.get(f"{ACTOR}.fsdp_config.param_offload", False)
    kept_averages = not keys.get(f"{ACTOR}.fsdp_config.optimizer_offload", False)
    return Demand(
        weights=weights,
        gradients=4 * trained / shards,
        optimiser=averages,
        gathered=2 * (2 * shape.layer_parameters + shape.vocabulary * shape.hidden),
        activations=2 * tokens * shape.hidden * shape.layers + inside
        if again
        else inside * shape.layers,
        logits=0 if keys.get(f"{MODEL}.use_fused_kernels") else 4 * tokens * shape.vocabulary,
        sampler=sampler,
        cache=cache,
        cached_tokens=max(0, int(cache * parallel / shape.kv_bytes)),
        resident=weights * kept_weights + averages * kept_averages,
        gpus=gpus,
        shards=shards,
        held_sampler=0.0 if keys.get(f"{ROLLOUT}.free_cache_engine", True) else sampler,
    )


def adapters(shape: Shape, rank: int) -> int:
    """Count the weights of low-rank adapters on every linear part of every layer."""
    attention = 4 * shape.hidden + (2 * shape.heads + 2 * shape.kv_heads) * shape.head
    return shape.layers * rank * (attention + 3 * (shape.hidden + shape.inner))

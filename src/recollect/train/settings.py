"""What a person can set about the embedded engine. Plain data, importable without torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank adapters through peft; the base weights stay as they are."""

    rank: int = 0
    """0 uses no adapters and trains all weights."""
    alpha: int = 32
    targets: str = "all-linear"


@dataclass(frozen=True)
class ModelConfig:
    """Which model is trained, and where."""

    path: str = ""
    """A folder that transformers can load."""
    device: str = "auto"
    """auto takes the first GPU if there is one, else the CPU."""
    lora: LoraConfig = LoraConfig()
    recompute: float = 0.0
    """Share of the layers that compute their activations again in the backward pass, which saves
    memory and costs up to a third more time."""
    compile: bool = False
    """Fuse the small operations of a layer while training: half a minute at the start, about a
    tenth of every update on a GPU."""
    threads: int = 0
    """CPU threads for torch; 0 leaves torch's choice."""
    cache_gib: float = 4.0
    """Memory for the sampler's keys and values."""


@dataclass(frozen=True)
class OptimConfig:
    """AdamW with linear warm-up, then a constant rate."""

    lr: float = 1e-6
    warmup_steps: int = 20
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    offload: bool = False
    """Keep AdamW's averages, eight bytes for every weight, in the memory of the host: a 7B model is
    then trained whole on one GPU of 141 GB, for a few seconds more per update."""
    clip_norm: float = 1.0
    """Gradients longer than this are shortened to it."""


@dataclass(frozen=True)
class LossConfig:
    """PPO's clipped objective with a penalty for leaving the reference (MemAgent's settings)."""

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float = 3.0
    """Bounds the loss where the advantage is negative and the ratio large."""
    kl_coef: float = 0.001
    """0 needs no reference model."""

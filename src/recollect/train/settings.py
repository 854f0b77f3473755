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
    gradient_checkpointing: bool = False
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

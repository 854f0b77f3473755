"""What a person can set about the embedded engine. Plain data, importable without torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank adapters through peft; the base weights stay as they are."""

    rank: int = 16
    alpha: int = 32
    targets: str = "all-linear"


@dataclass(frozen=True)
class ModelConfig:
    """Which model is trained, and where."""

    path: str = ""
    """A folder that transformers can load."""
    device: str = "auto"
    """auto takes the first GPU if there is one, else the CPU."""
    lora: LoraConfig | None = None
    gradient_checkpointing: bool = False
    threads: int = 0
    """CPU threads for torch; 0 leaves torch's choice."""
    cache_gib: float = 4.0
    """Memory for the sampler's keys and values."""

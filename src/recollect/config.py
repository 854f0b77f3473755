"""What a person can set about a run: one frozen dataclass of frozen dataclasses. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from recollect.agents.fold import FoldAgent
from recollect.errors import UserError
from recollect.tasks.ledger import Ledger
from recollect.tasks.recall import Recall
from recollect.train.settings import LossConfig, ModelConfig, OptimConfig


@dataclass(frozen=True)
class RolloutConfig:
    """How many episodes a step has, and how they are sampled."""

    tasks: int = 32
    """Tasks per step."""
    n: int = 16
    """Episodes per task: the group that is compared."""
    temperature: float = 1.0
    top_p: float = 1.0
    concurrency: int = 1024
    timeout: float | None = None
    """Seconds before an episode counts as failed."""


@dataclass(frozen=True)
class ValidationConfig:
    """How held-out accuracy is measured."""

    tasks: int = 128
    n: int = 1
    """Episodes per task."""
    temperature: float = 0.0
    top_p: float = 1.0
    before_training: bool = True
    lengths: tuple[int, ...] = ()
    """At the end, also measure at these multiples of the training length."""
    length_tasks: int = 128


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a training run."""

    name: str
    model: ModelConfig
    tasks: Recall | Ledger
    agent: FoldAgent = FoldAgent()
    rollout: RolloutConfig = RolloutConfig()
    advantage: Literal["grpo", "grpo_std", "rloo"] = "grpo"
    loss: LossConfig = LossConfig()
    optim: OptimConfig = OptimConfig()
    updates_per_step: int = 1
    """Optimiser steps per batch, whatever the number of contexts in it."""
    token_budget: int = 16384
    """Tokens computed at once in an update; a prefix that samples share counts once."""
    val: ValidationConfig = ValidationConfig()
    seed: int = 0
    steps: int = 100
    test_freq: int = 5
    """Validate every so many steps."""
    save_freq: int = 10
    """Write a checkpoint every so many steps, and at the end."""
    keep: int = 2
    """How many checkpoints stay."""
    folder: Path = field(default_factory=lambda: Path("runs"))
    """Runs are written to a folder of their name in here."""
    resume: str = "auto"
    """auto goes on with what the run folder holds, never starts anew, a path names a checkpoint."""
    trackers: tuple[str, ...] = ()
    """Where metrics go beside metrics.jsonl: tensorboard, wandb, swanlab, trackio."""

    def __post_init__(self) -> None:
        counts = {
            "rollout.tasks": self.rollout.tasks,
            "rollout.n": self.rollout.n,
            "val.tasks": self.val.tasks,
            "val.n": self.val.n,
            "steps": self.steps,
            "test_freq": self.test_freq,
            "save_freq": self.save_freq,
            "keep": self.keep,
            "updates_per_step": self.updates_per_step,
            "token_budget": self.token_budget,
        }
        for name, count in counts.items():
            if count < 1:
                raise UserError(f"{name} is {count}", f"set --{name} to 1 or more")
        if self.updates_per_step > self.rollout.tasks:
            raise UserError(
                f"{self.updates_per_step} updates cannot share {self.rollout.tasks} tasks",
                "set --updates-per-step to at most --rollout.tasks",
            )
        if self.rollout.temperature <= 0:
            raise UserError(
                f"rollout.temperature is {self.rollout.temperature}: all episodes would be equal",
                "set --rollout.temperature above 0",
            )

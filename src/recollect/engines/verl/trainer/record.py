"""The run folder of a run on a cluster: what the viewer, `replay` and `report` read.

Checkpoints are verl's, in `checkpoints/global_step_N`; continuing from N drops what is later.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.config.stored import settings_of
from recollect.config.train import MAY_CHANGE, TrainConfig
from recollect.rollout import Group
from recollect.runs.episodes import Decode
from recollect.runs.run import Run
from recollect.train import metrics as report

NAMES = {
    "actor/pg_loss": "train/pg_loss",
    "actor/kl_loss": "train/kl",
    "actor/entropy": "train/entropy",
    "actor/grad_norm": "train/grad_norm",
    "actor/lr": "train/lr",
    "actor/ppo_kl": "train/log_ratio",  # signed: the embedded engine's mismatch never is
    "actor/pg_clipfrac": "train/clip_high",
    "actor/pg_clipfrac_lower": "train/clip_dual",
}
"""What verl calls numbers that the embedded engine has, too."""
PHASES = {
    "rollout": ("gen",),
    "update": ("old_log_prob", "ref", "adv", "update_actor"),
    "sync": ("update_weights",),
    "validation": ("testing",),
}
"""Our phases of a step, by verl's timers."""


@dataclass
class Record:
    """Write down what happens in a run."""

    run: Run
    test_freq: int
    """Steps between those whose training episodes are all stored."""
    keep_groups: int = 1
    """Groups of training episodes stored at every other step; -1 stores all."""
    decode: Decode | None = None

    @classmethod
    def open(
        cls, folder: Path, config: TrainConfig, step: int, decode: Decode | None = None
    ) -> Record:
        """Start the record of a run, or continue it after `step`."""
        run = Run.open(folder, settings_of(config), at=step, may_change=MAY_CHANGE)
        return cls(run, config.test_freq, config.rollout.keep_groups, decode)

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append a line to metrics.jsonl."""
        self.run.log(step, {name: float(v) for name, v in metrics.items() if _is_number(v)})

    def step(
        self, step: int, metrics: Mapping[str, Any], seconds: Mapping[str, float],
        groups: Sequence[Group],
    ) -> None:  # fmt: skip
        """Log a training step, under our names beside verl's; keep the episodes now and then."""
        named = {ours: metrics[theirs] for theirs, ours in NAMES.items() if theirs in metrics}
        times = {
            f"time/{phase}": sum(seconds.get(name, 0.0) for name in names)
            for phase, names in PHASES.items()
            if any(name in seconds for name in names)
        }
        whole = self.keep_groups < 0 or step % self.test_freq == 0
        kept = groups if whole else groups[: self.keep_groups]
        if kept:
            episodes = [e for group in kept for e in group]
            self.run.write_episodes(step, "train", episodes, self.decode)
        self.log(step, {**metrics, **named, **times})

    def validated(self, step: int, groups: Sequence[Group]) -> dict[str, float]:
        """Store held-out episodes; return what they came to."""
        episodes = [e for group in groups for e in group]
        self.run.write_episodes(step, "val", episodes, self.decode)
        return report.validation_metrics(groups)


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, str | bool) and not math.isinf(float(value))
    except (TypeError, ValueError):
        return False

"""What the warm-ups of several benchmarks share: a teacher's episodes, learned by likelihood."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.config.engine import LossConfig, OptimConfig
from recollect.models.model import LoadedModel
from recollect.rollout import Group
from recollect.samples import samples_of
from recollect.train.trainer import Trainer


def learn_form(model: LoadedModel, groups: Sequence[Group], token_budget: int) -> None:
    """Fit all that a teacher said, once, 32 groups a step: an advantage of 1 and no clipping."""
    loss = LossConfig("cispo", clip_low=0.0, clip_high=0.0, kl_coef=0.0)
    optim = OptimConfig(1e-4, warmup_steps=5, weight_decay=0.0)
    trainer = Trainer(model, loss, optim, token_budget=token_budget)
    for at in range(0, len(groups), 32):
        batch = groups[at : at + 32]
        ones = [[[1.0] * len(e.contexts) for e in group] for group in batch]
        print(at, trainer.update(samples_of(batch, ones))["train/entropy"], flush=True)

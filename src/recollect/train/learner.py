"""What learns in a run, the policy and perhaps a critic: from a batch of episodes to moved weights.

Knows nothing of how episodes are made, nor of run folders.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from recollect.rollout import Group
from recollect.samples import make_sample
from recollect.train import metrics as report
from recollect.train import saved_model
from recollect.train.comparison import charge, learned_from, make_batch, split_local
from recollect.train.critic import Critic
from recollect.train.rollouts import Rollouts
from recollect.train.rows import Row
from recollect.train.trainer import Trainer
from recollect.types import Context, Sample


def owners_of(samples: Sequence[Sample], groups: Sequence[Group]) -> dict[int, Context]:
    """Find the contexts of some groups by their samples; both come in the same order.

    Siblings may say the same: then their tokens are equal, but their advantages differ.
    """
    waiting: dict[tuple[bytes, bytes], deque[Context]] = {}
    for context in (c for group in groups for e in group for c in e.contexts if e.counts):
        if context.trainable and context.turns and context.exact:
            key = _key(make_sample(context, 0.0, 0, 0))
            waiting.setdefault(key, deque()).append(context)
    found: dict[int, Context] = {}
    for sample in samples:
        if alike := waiting.get(_key(sample)):
            found[id(sample)] = alike.popleft()
    return found


def _key(sample: Sample) -> tuple[bytes, bytes]:
    return sample.token_ids.tobytes(), sample.logprobs.tobytes()


def _plain(logprobs: np.ndarray) -> list[float]:
    return [round(float(logprob), 7) for logprob in logprobs]


class Learner:
    """The trainer of the policy, and the critic that judges its tokens where there is one."""

    def __init__(self, rollouts: Rollouts) -> None:
        config = self.config = rollouts.config
        self.trainer = Trainer(
            rollouts.model,
            config.loss,
            config.optim,
            updates_per_step=config.updates_per_step,
            epochs=config.epochs,
            token_budget=config.token_budget,
            temperature=config.rollout.temperature,
            local_weight=config.local.weight,
        )
        self.critic: Critic | None = None
        if rollouts.critic:
            self.critic = Critic(
                rollouts.critic,
                config.critic,
                config.optim,
                config.updates_per_step,
                config.epochs,
                config.token_budget,
            )

    def learn(
        self, step: int, groups: Sequence[Group], kept_groups: Sequence[Group] = ()
    ) -> dict[str, float]:
        """Compare the episodes of a step, learn from them, and return what to remember of it.

        Contexts of the groups that are kept also store what the trainer made of their tokens.
        """
        config = self.config
        whole, local = split_local(groups)
        kept = learned_from(config, whole)
        metrics: dict[str, float] = {}
        if config.rollout.refills:
            metrics["groups/kept"] = len(kept)
        charged, charges = charge(config, self.trainer.divergences, [*kept, *local])
        samples = make_batch(config, charged[: len(kept)], charged[len(kept) :])
        metrics |= {**charges, **report.sample_metrics(samples)}
        if self.critic:
            samples, judged = self.critic.judge(samples)
            metrics |= judged
            if step <= config.critic.warmup:
                return metrics
        owners = owners_of(samples, kept_groups)

        def enter(row: Row, logprobs: np.ndarray) -> None:
            if context := owners.get(id(row.sample)):
                advantages = row.sample.advantages[row.sample.trained]
                context.learned = {"trainer": _plain(logprobs), "advantage": _plain(advantages)}
                if row.old is not None:
                    context.learned["before"] = _plain(row.old)

        return metrics | self.trainer.update(samples, enter if owners else None)

    def save(self, folder: Path) -> None:
        """Write all that a resumed run needs to continue bit for bit."""
        saved_model.save(folder, self.trainer.model, self.trainer)
        if self.critic:
            saved_model.save(folder, self.critic.model, self.critic, saved_model.CRITIC)

    def load(self, folder: Path) -> None:
        """Read a checkpoint back."""
        saved_model.load(folder, self.trainer.model, self.trainer)
        if self.critic:
            saved_model.load(folder, self.critic.model, self.critic, saved_model.CRITIC)

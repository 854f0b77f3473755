"""The critic: a second model that learns what reward to expect where a token is drawn.

It turns samples that carry their context's reward into samples with an advantage for every token.
Knows nothing of agents, memories or tasks.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from recollect.advantages import gae, whitened_tokens
from recollect.config.engine import CriticConfig, ModelConfig, OptimConfig
from recollect.errors import UserError
from recollect.models.model import LoadedModel, load_model
from recollect.models.tokenizer import check_folder
from recollect.models.transfer import put
from recollect.models.trie.pack import plan_micro_batches
from recollect.train.loss import token_mean
from recollect.train.optimiser import Optimiser
from recollect.train.predictions import Predictions, by_sample
from recollect.train.trainer import split_by_group
from recollect.types import Sample


@dataclass(frozen=True)
class ValueLoss:
    """A loss to go backward from, and how many tokens were clipped."""

    loss: torch.Tensor
    clipped: torch.Tensor


def value_loss(
    value_T: torch.Tensor,
    old_T: torch.Tensor,
    return_T: torch.Tensor,
    weight_T: torch.Tensor,
    clip: float,
) -> ValueLoss:
    """loss = sum_t w_t max((V_t - return_t)^2, (V'_t - return_t)^2) / 2.

    V' is V kept within `clip` of what the critic said before the batch: as in PPO's clip, a value
    that has gone that far gains nothing by going farther.
    """
    kept_T = torch.minimum(torch.maximum(value_T, old_T - clip), old_T + clip)
    plain_T, clipped_T = (value_T - return_T).square(), (kept_T - return_T).square()
    loss = 0.5 * (weight_T * torch.maximum(plain_T, clipped_T)).sum()
    return ValueLoss(loss, (clipped_T > plain_T).sum())


def explained_variance(return_T: np.ndarray, value_T: np.ndarray) -> float:
    """1 - var(return - V) / var(return): 1 knows all, 0 is as good as a constant.

    Where all returns are equal there is nothing to explain: 0.
    """
    if not len(return_T) or not (spread := float(return_T.var())):
        return 0.0
    return 1.0 - float((return_T - value_T).var()) / spread


def load_critic(model: ModelConfig, critic: CriticConfig, policy: LoadedModel) -> LoadedModel:
    """Load the body the critic starts with, and give it a head that expects nothing yet."""
    if critic.path:
        check_folder(critic.path, "critic.path")
    loaded = load_model(dataclasses.replace(model, path=critic.path or model.path))
    if loaded.tokenizer.hf.get_vocab() != policy.tokenizer.hf.get_vocab():
        raise UserError(
            f"the critic in {critic.path} reads other tokens than the model in {model.path}",
            "set --critic.path to a model of the same family, or leave it out",
        )
    width = loaded.network.config.get_text_config().hidden_size
    head = torch.nn.Linear(width, 1, device=loaded.device)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    loaded.network.set_output_embeddings(head)
    return loaded


class Critic:
    """Judge batches, and learn from each how to judge the next one better."""

    def __init__(
        self,
        model: LoadedModel,
        config: CriticConfig,
        optim: OptimConfig,
        updates_per_step: int = 1,
        epochs: int = 1,
        token_budget: int = 16384,
        share: bool = True,
    ) -> None:
        self.model = model
        """One whose head has one output, as `load_critic` makes it."""
        self.config = config
        self.updates_per_step = updates_per_step
        self.epochs = epochs
        self.token_budget = token_budget
        self.share = share
        self.optimiser = Optimiser(model, dataclasses.replace(optim, lr=config.lr))

    def judge(self, samples: Sequence[Sample]) -> tuple[list[Sample], dict[str, float]]:
        """Return a batch with GAE's advantages in place of rewards, having learned from it.

        A sample comes with its context's reward at every trained token; it is paid at the last.
        """
        values = self.values(samples)
        advantages, returns = [], []
        for sample, value_T in zip(samples, values, strict=True):
            reward_T = np.zeros(len(value_T))
            reward_T[-1:] = sample.advantages[sample.trained][-1:]
            advantage_T, return_T = gae(reward_T, value_T, self.config.gamma, self.config.lam)
            advantages.append(advantage_T)
            returns.append(return_T.astype(np.float32))
        judged = [
            _with_advantages(sample, own)
            for sample, own in zip(samples, whitened_tokens(advantages), strict=True)
        ]
        return judged, self._learn(samples, values, returns)

    def values(self, samples: Sequence[Sample]) -> list[np.ndarray]:
        """Return what is expected where every trained token is drawn, one array per sample."""
        return by_sample(
            samples,
            self.token_budget,
            self.model.device,
            self.share,
            lambda predicted: predicted.values(self.model),
        )

    def _learn(
        self, samples: Sequence[Sample], values: list[np.ndarray], returns: list[np.ndarray]
    ) -> dict[str, float]:
        """Take as many optimiser steps as the policy does."""
        rate = self.optimiser.rate
        losses, norms, clipped = [], [], 0.0
        with self.model.training():
            for part in split_by_group(samples, self.updates_per_step) * self.epochs:
                loss, own = self._backward(part, samples, values, returns)
                losses.append(loss)
                clipped += own
                norms.append(self.optimiser.step())
        value_T, return_T = (np.concatenate([np.empty(0), *own]) for own in (values, returns))
        finite = [norm for norm in norms if math.isfinite(norm)]
        return {
            "critic/value_loss": sum(losses) / len(losses),
            "critic/explained_variance": explained_variance(return_T, value_T),
            "critic/clip_fraction": clipped / max(len(value_T) * self.epochs, 1),
            "critic/value": float(value_T.mean()) if len(value_T) else 0.0,
            "critic/return": float(return_T.mean()) if len(return_T) else 0.0,
            "critic/grad_norm": sum(finite) / max(len(finite), 1),
            "critic/lr": rate,
            "critic/updates_skipped": len(norms) - len(finite),
        }

    def _backward(
        self,
        part: list[int],
        samples: Sequence[Sample],
        values: list[np.ndarray],
        returns: list[np.ndarray],
    ) -> tuple[float, float]:
        """Add up a mini-batch's gradient; return its loss and how many of its tokens clipped."""
        part = [i for i in part if len(values[i])]
        trained_B = np.array([len(values[i]) for i in part], dtype=np.int64)
        weight_B = token_mean(trained_B, trained_B)
        results: list[ValueLoss] = []
        for run in plan_micro_batches([samples[i] for i in part], self.token_budget):
            own = [part[i] for i in run]
            predicted = Predictions.of([samples[i] for i in own], self.model.device, self.share)
            result = value_loss(
                predicted.values(self.model),
                self._tensor([values[i] for i in own]),
                self._tensor([returns[i] for i in own]),
                self._tensor([np.repeat(weight_B[run], trained_B[run])]),
                self.config.cliprange_value,
            )
            result.loss.backward()
            results.append(ValueLoss(result.loss.detach(), result.clipped))
        return sum(float(r.loss) for r in results), sum(float(r.clipped) for r in results)

    def _tensor(self, parts: Sequence[np.ndarray]) -> torch.Tensor:
        return put(np.concatenate(parts).astype(np.float32), self.model.device)


def _with_advantages(sample: Sample, own: np.ndarray) -> Sample:
    advantages = np.zeros(len(sample.token_ids), dtype=np.float32)
    advantages[sample.trained] = own
    return dataclasses.replace(sample, advantages=advantages)

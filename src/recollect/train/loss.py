"""The policy loss: PPO clip and dual clip, KL to a reference, and how tokens are weighed.

Pure functions over 1-D tensors with one element per trained token (suffix _T). Knows nothing of
models, packing or micro-batches: weights are global, so losses of parts of a mini-batch add up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from recollect.train.settings import LossConfig


@dataclass(frozen=True)
class TrainedTokens:
    """Everything the loss knows about each trained token."""

    logprob_T: torch.Tensor
    """Under the weights being trained; carries the gradient."""
    behaviour_T: torch.Tensor
    """Under the policy that sampled it."""
    advantage_T: torch.Tensor
    weight_T: torch.Tensor
    """Its share in the mini-batch's loss."""
    reference_T: torch.Tensor | None = None
    """Under the model it may not stray from; None leaves the KL term out."""


@dataclass(frozen=True)
class LossStats:
    """Sums that add up over the parts of a mini-batch."""

    tokens: int = 0
    losses: dict[str, float] = field(default_factory=dict)
    """Weighted like the loss itself: reported as they are."""
    sums: dict[str, float] = field(default_factory=dict)
    """Reported as means over tokens."""
    ratio_max: float = 0.0

    def __add__(self, other: LossStats) -> LossStats:
        return LossStats(
            self.tokens + other.tokens,
            {k: self.losses.get(k, 0.0) + v for k, v in other.losses.items()} or self.losses,
            {k: self.sums.get(k, 0.0) + v for k, v in other.sums.items()} or self.sums,
            max(self.ratio_max, other.ratio_max),
        )

    def means(self) -> dict[str, float]:
        """Return the sums as means over tokens."""
        return {name: total / max(self.tokens, 1) for name, total in self.sums.items()}


@dataclass(frozen=True)
class PolicyLoss:
    """A loss to go backward from, and what it was made of."""

    loss: torch.Tensor
    tokens: int
    losses: dict[str, torch.Tensor]
    sums: dict[str, torch.Tensor]
    ratio_max: torch.Tensor

    @property
    def stats(self) -> LossStats:
        """Fetch the numbers, waiting for the device: best asked when all work is under way."""
        # One transfer for all: each would be its own wait.
        values = [*self.losses.values(), *self.sums.values(), self.ratio_max]
        *numbers, ratio_max = torch.stack([x.float() for x in values]).tolist()
        return LossStats(
            self.tokens,
            dict(zip(self.losses, numbers[: len(self.losses)], strict=True)),
            dict(zip(self.sums, numbers[len(self.losses) :], strict=True)),
            ratio_max,
        )


def policy_loss(config: LossConfig, tokens: TrainedTokens) -> PolicyLoss:
    """loss = sum_t w_t (pg_t + kl_coef kl_t), where r = exp(logprob - behaviour) and

    A >= 0: pg = max(-r A, -clip(r, 1 - low, 1 + high) A)
    A < 0:  pg = min(max(-r A, -clip(r, 1 - low, 1 + high) A), -dual A)
    """
    advantage_T, weight_T = tokens.advantage_T, tokens.weight_T
    # Beyond e^20 a ratio says only that something broke; a finite one can still be clipped.
    log_ratio_T = (tokens.logprob_T - tokens.behaviour_T).clamp(-20.0, 20.0)
    ratio_T = log_ratio_T.exp()
    plain_T = -ratio_T * advantage_T
    clipped_T = -ratio_T.clamp(1.0 - config.clip_low, 1.0 + config.clip_high) * advantage_T
    pg_T = torch.maximum(plain_T, clipped_T)
    bound_T = -config.dual_clip * advantage_T
    dual_T = (advantage_T < 0) & (pg_T > bound_T)
    pg_T = torch.where(dual_T, bound_T, pg_T)
    clip_T = (clipped_T > plain_T) & ~dual_T

    pg_loss = (weight_T * pg_T).sum()
    loss, losses = pg_loss, {"pg_loss": pg_loss}
    sums = {
        "clip_high": (clip_T & (advantage_T > 0)).sum(),
        "clip_low": (clip_T & (advantage_T < 0)).sum(),
        "clip_dual": dual_T.sum(),
        "ratio": ratio_T.sum(),
        # k3 over tokens the behaviour policy drew: KL(behaviour || trained), never negative.
        "behaviour_kl": (ratio_T - 1.0 - log_ratio_T).sum(),
        "entropy": -tokens.logprob_T.sum(),  # estimated by the tokens that were drawn
    }
    if tokens.reference_T is not None:
        kl_T = low_var_kl(tokens.logprob_T, tokens.reference_T)
        losses["kl_loss"] = config.kl_coef * (weight_T * kl_T).sum()
        loss, sums["kl"] = loss + losses["kl_loss"], kl_T.sum()
    losses = {name: value.detach() for name, value in {"loss": loss, **losses}.items()}
    sums = {name: value.detach() for name, value in sums.items()}
    return PolicyLoss(loss, len(ratio_T), losses, sums, ratio_T.detach().max())


def low_var_kl(logprob_T: torch.Tensor, reference_T: torch.Tensor) -> torch.Tensor:
    """Estimate KL(policy || reference) per token as exp(d) - d - 1, d = reference - policy.

    The result is kept within 10, as in the reference systems; d within 20, so that it stays finite.
    """
    d_T = (reference_T - logprob_T).clamp(-20.0, 20.0)
    return (d_T.exp() - d_T - 1.0).clamp(-10.0, 10.0)


Aggregate = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(trained_B, episode_B) -> weight_B: how many tokens each sample of a whole mini-batch trains, and
of which episode it is; from these the weight of each of its trained tokens. A sample that trains
none counts in no mean."""


def token_mean(trained_B: np.ndarray, episode_B: np.ndarray) -> np.ndarray:
    """Every trained token counts the same."""
    return np.full(len(trained_B), 1.0 / max(trained_B.sum(), 1))


def sequence_mean_token_sum(trained_B: np.ndarray, episode_B: np.ndarray) -> np.ndarray:
    """Sum over a sample's tokens, mean over samples."""
    return np.full(len(trained_B), 1.0 / max((trained_B > 0).sum(), 1))


def sequence_mean_token_mean(trained_B: np.ndarray, episode_B: np.ndarray) -> np.ndarray:
    """Mean over a sample's tokens, mean over samples."""
    return sequence_mean_token_sum(trained_B, episode_B) / np.maximum(trained_B, 1)


def episode_mean(trained_B: np.ndarray, episode_B: np.ndarray) -> np.ndarray:
    """Mean over all tokens of an episode, mean over episodes."""
    _, which_B = np.unique(episode_B, return_inverse=True)
    trained_E = np.bincount(which_B, weights=trained_B)
    return 1.0 / (max((trained_E > 0).sum(), 1) * np.maximum(trained_E, 1)[which_B])


def constant_length(trained_B: np.ndarray, episode_B: np.ndarray, length: int = 1024) -> np.ndarray:
    """Sum over a sample's tokens, divided by a length that is the same for all (Dr.GRPO)."""
    return sequence_mean_token_sum(trained_B, episode_B) / length

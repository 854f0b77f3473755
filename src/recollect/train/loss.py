"""The policy loss: PPO, GSPO or CISPO, KL to a reference, entropy, and how tokens are weighed.

Pure functions over 1-D tensors with one element per trained token (suffix _T). Knows nothing of
models, packing or micro-batches: weights are global, so losses of parts of a mini-batch add up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from recollect.config.engine import Divergence, LossConfig


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
    old_T: torch.Tensor | None = None
    """Under the trainer's own weights before the batch, where it is used more than once; None takes
    the sampler's for these, and with TIS the present ones."""
    entropy_T: torch.Tensor | None = None
    """The entropy of the prediction that it was drawn from; carries the gradient."""
    sequence_T: torch.Tensor | None = None
    """The number of its sequence, for GSPO; from 0 and below T."""
    sequence_log_ratio_T: torch.Tensor | None = None
    """The mean log-ratio of that sequence, where not all of it is here."""


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
    """loss = sum_t w_t (u_t pg_t + kl_coef kl_t - entropy_coef H_t), pg by `config.kind`.

    u = 1, and pg's ratio is taken against the behaviour policy, or against `old` where that is
    given. With TIS u = min(old / behaviour, cap), a constant, and the ratio is against `old`.
    """
    advantage_T, weight_T = tokens.advantage_T, tokens.weight_T
    log_ratio_T = bounded(tokens.logprob_T - tokens.behaviour_T)
    ratio_T = log_ratio_T.exp()
    correction_T, moved_T = None, log_ratio_T
    if config.tis_cap or tokens.old_T is not None:
        old_T = tokens.logprob_T.detach() if tokens.old_T is None else tokens.old_T
        moved_T = bounded(tokens.logprob_T - old_T)
        if config.tis_cap:
            correction_T = truncated_weight(old_T, tokens.behaviour_T, config.tis_cap)
    if config.kind == "gspo":
        terms = gspo(config, sequence_ratio(tokens, moved_T), advantage_T)
    elif config.kind == "cispo":
        terms = cispo(config, moved_T.exp(), advantage_T, tokens.logprob_T)
    else:
        terms = ppo(config, ratio_T if moved_T is log_ratio_T else moved_T.exp(), advantage_T)

    pg_T = terms.pg_T if correction_T is None else correction_T * terms.pg_T
    pg_loss = (weight_T * pg_T).sum()
    loss, losses = pg_loss, {"pg_loss": pg_loss}
    sums = {
        "clip_high": terms.high_T.sum(),
        "clip_low": terms.low_T.sum(),
        "clip_dual": terms.dual_T.sum(),
        "ratio": ratio_T.sum(),
        # k3 over tokens the behaviour policy drew: KL(behaviour || trained), never negative.
        "behaviour_kl": (log_ratio_T.expm1() - log_ratio_T).clamp(min=0.0).sum(),
        "entropy": -tokens.logprob_T.sum(),  # estimated by the tokens that were drawn
    }
    if correction_T is not None:
        sums["tis_weight"] = correction_T.sum()
        sums["tis_capped"] = (correction_T >= config.tis_cap).sum()
    if tokens.reference_T is not None:
        kl_T = DIVERGENCES[config.kl](tokens.logprob_T, tokens.reference_T)
        losses["kl_loss"] = config.kl_coef * (weight_T * kl_T).sum()
        loss, sums["kl"] = loss + losses["kl_loss"], kl_T.sum()
    if tokens.entropy_T is not None:
        sums["entropy"] = tokens.entropy_T.sum()
        losses["entropy_loss"] = -config.entropy_coef * (weight_T * tokens.entropy_T).sum()
        loss = loss + losses["entropy_loss"]
    losses = {name: value.detach() for name, value in {"loss": loss, **losses}.items()}
    sums = {name: value.detach() for name, value in sums.items()}
    return PolicyLoss(loss, len(ratio_T), losses, sums, ratio_T.detach().max())


def bounded(log_ratio_T: torch.Tensor) -> torch.Tensor:
    """Keep log-ratios within 20.

    Beyond e^20 a ratio says only that something broke; a finite one can still be clipped.
    """
    return log_ratio_T.clamp(-20.0, 20.0)


@dataclass(frozen=True)
class Terms:
    """The policy-gradient term of every token, and which of them were clipped."""

    pg_T: torch.Tensor
    high_T: torch.Tensor
    low_T: torch.Tensor
    dual_T: torch.Tensor


def ppo(config: LossConfig, ratio_T: torch.Tensor, advantage_T: torch.Tensor) -> Terms:
    """Clip every token's ratio r, and once more where that leaves the loss unbounded.

    A >= 0: pg = max(-r A, -clip(r, 1 - low, 1 + high) A)
    A < 0:  pg = min(max(-r A, -clip(r, 1 - low, 1 + high) A), -dual A)
    """
    plain_T = -ratio_T * advantage_T
    clipped_T = -ratio_T.clamp(1.0 - config.clip_low, 1.0 + config.clip_high) * advantage_T
    pg_T = torch.maximum(plain_T, clipped_T)
    bound_T = -config.dual_clip * advantage_T
    dual_T = (advantage_T < 0) & (pg_T > bound_T)
    pg_T = torch.where(dual_T, bound_T, pg_T)
    clip_T = (clipped_T > plain_T) & ~dual_T
    return Terms(pg_T, clip_T & (advantage_T > 0), clip_T & (advantage_T < 0), dual_T)


def gspo(config: LossConfig, ratio_T: torch.Tensor, advantage_T: torch.Tensor) -> Terms:
    """pg = max(-s A, -clip(s, 1 - low, 1 + high) A), s = exp(mean of log r over the sequence).

    Every token carries its sequence's ratio (`sequence_ratio`), so that a sequence is clipped as a
    whole. There is no second clip.
    """
    plain_T = -ratio_T * advantage_T
    clipped_T = -ratio_T.clamp(1.0 - config.clip_low, 1.0 + config.clip_high) * advantage_T
    clip_T = clipped_T > plain_T
    none_T = torch.zeros_like(clip_T)
    pg_T = torch.maximum(plain_T, clipped_T)
    return Terms(pg_T, clip_T & (advantage_T > 0), clip_T & (advantage_T < 0), none_T)


def sequence_ratio(tokens: TrainedTokens, log_ratio_T: torch.Tensor) -> torch.Tensor:
    """Return s = exp(mean of log r over the sequence) for every token, with the token's gradient.

    ds = s (1/n) sum_t dlog r_t. A token's share of it is taken through the token itself, as
    s exp(log r_t - constant) (the paper's GSPO-token): with weights and advantages that are equal
    within a sequence, the tokens' gradients add up to the sequence's, and those of a sequence that
    is cut into parts still do. Where they differ, every token pulls by its own.
    """
    mean_T = tokens.sequence_log_ratio_T
    if mean_T is None:
        if tokens.sequence_T is None:
            raise ValueError("GSPO needs to know which sequence a token is of")
        mean_T = sequence_mean(log_ratio_T.detach(), tokens.sequence_T)
    return (mean_T + log_ratio_T - log_ratio_T.detach()).exp()


def sequence_mean(values_T: torch.Tensor, sequence_T: torch.Tensor) -> torch.Tensor:
    """Give every token the mean over its sequence."""
    zeros_S = torch.zeros_like(values_T)  # there are at most as many sequences as tokens
    sum_S = zeros_S.index_add(0, sequence_T, values_T)
    count_S = zeros_S.index_add(0, sequence_T, torch.ones_like(values_T))
    return (sum_S / count_S.clamp(min=1.0))[sequence_T]


def cispo(
    config: LossConfig, ratio_T: torch.Tensor, advantage_T: torch.Tensor, logprob_T: torch.Tensor
) -> Terms:
    """pg = -constant(clip(r, 1 - low, 1 + high)) A logprob: a clipped token still learns."""
    ratio_T = ratio_T.detach()
    low, high = 1.0 - config.clip_low, 1.0 + config.clip_high
    pg_T = -ratio_T.clamp(low, high) * advantage_T * logprob_T
    counts_T = advantage_T != 0
    none_T = torch.zeros_like(counts_T)
    return Terms(pg_T, counts_T & (ratio_T > high), counts_T & (ratio_T < low), none_T)


def truncated_weight(old_T: torch.Tensor, behaviour_T: torch.Tensor, cap: float) -> torch.Tensor:
    """TIS: u = min(old / behaviour, cap), without a gradient."""
    return bounded(old_T - behaviour_T).detach().exp().clamp(max=cap)


def k1(logprob_T: torch.Tensor, reference_T: torch.Tensor) -> torch.Tensor:
    """Estimate KL(policy || reference) per token as logprob - reference: unbiased, any sign.

    Its gradient averages to zero over what the policy draws: charge it in the reward.
    """
    return bounded(logprob_T - reference_T)


def k2(logprob_T: torch.Tensor, reference_T: torch.Tensor) -> torch.Tensor:
    """Estimate KL(policy || reference) per token as (logprob - reference)^2 / 2.

    A biased value whose gradient, over what the policy draws, is that of the KL.
    """
    return bounded(logprob_T - reference_T).square() / 2.0


def low_var_kl(logprob_T: torch.Tensor, reference_T: torch.Tensor) -> torch.Tensor:
    """Estimate KL(policy || reference) per token as exp(d) - d - 1, d = reference - policy (k3).

    The result is kept within 10, as in the reference systems; d within 20, so that it stays finite.
    """
    d_T = (reference_T - logprob_T).clamp(-20.0, 20.0)
    return (d_T.exp() - d_T - 1.0).clamp(-10.0, 10.0)


DIVERGENCES: dict[Divergence, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "k1": k1,
    "k2": k2,
    "k3": low_var_kl,
}


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


def weigh_apart(
    aggregate: Aggregate,
    trained_B: np.ndarray,
    episode_B: np.ndarray,
    local_B: np.ndarray,
    local_weight: float,
) -> np.ndarray:
    """L = L_whole + local_weight L_local (LoGo): each has denominators of its own."""
    weight_B = np.zeros(len(trained_B))
    for chosen_B, factor in ((~local_B, 1.0), (local_B, local_weight)):
        weight_B[chosen_B] = factor * aggregate(trained_B[chosen_B], episode_B[chosen_B])
    return weight_B


def aggregate_of(config: LossConfig) -> Aggregate:
    """Return the weighing that the settings name."""
    named: dict[str, Aggregate] = {
        "token_mean": token_mean,
        "sequence_mean_token_sum": sequence_mean_token_sum,
        "sequence_mean_token_mean": sequence_mean_token_mean,
        "episode_mean": episode_mean,
        "constant_length": partial(constant_length, length=config.length),
    }
    return named[config.aggregate]

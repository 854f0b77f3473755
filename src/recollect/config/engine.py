"""What a person can set about the embedded engine. Plain data, importable without torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from recollect.bounds import ABOVE_0, DECAY, DRAFT, FROM_0, FROM_1, SHARE, Bounds, check_bounds

ABOVE_1 = Bounds("above 1", lambda number: 1 < number < math.inf)
"""Not inf: times an advantage of 0 that is no number."""
CAP = Bounds("to 0 or more", lambda number: number >= 0)
"""What caps something may be inf: it then caps nothing."""
LONGEST = Bounds("above 0; inf shortens none", lambda number: number > 0)


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank adapters through peft; the base weights stay as they are."""

    rank: int = 0
    """0 uses no adapters and trains all weights."""
    alpha: int = 32
    targets: str = "all-linear"
    """A pattern that the full names of adapted layers match; all-linear takes all but the head."""

    def __post_init__(self) -> None:
        check_bounds("model.lora", self, rank=FROM_0, alpha=FROM_1)


@dataclass(frozen=True)
class ModelConfig:
    """Which model is trained, and where."""

    path: str = ""
    """A folder that transformers can load."""
    device: str = "auto"
    """auto takes the first GPU if there is one, else the CPU."""
    lora: LoraConfig = LoraConfig()
    """Low-rank adapters through peft; the base weights stay as they are."""
    weights: Literal["float32", "bfloat16"] = "float32"
    """Type of the weights in forward and backward passes. bfloat16 halves the memory of weights and
    activations; the optimiser still keeps weights and sums gradients in float32."""
    recompute: float = 0.0
    """Share of the layers that compute their activations again in the backward pass, which saves
    memory and costs up to a third more time."""
    compile: bool = False
    """Fuse the small operations of a layer while training: costs about a minute at the start and
    saves a tenth to a fifth of every update on a GPU."""
    threads: int = 0
    """CPU threads for torch; 0 leaves the choice to torch."""
    cache_gib: float = 4.0
    """Memory for the sampler's keys and values."""
    drafts: int = 9
    """Tokens that the sampler guesses for a sequence at one step on a GPU, where replies repeat the
    text, the memory or each other; 0 guesses none. A guess never changes what is sampled."""

    def __post_init__(self) -> None:
        check_bounds(
            "model", self, recompute=SHARE, threads=FROM_0, cache_gib=ABOVE_0, drafts=DRAFT
        )


@dataclass(frozen=True)
class OptimConfig:
    """AdamW with linear warm-up, then a constant rate."""

    lr: float = 1e-6
    warmup_steps: int = 20
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    offload: bool = False
    """Keep AdamW's averages, eight bytes per weight, in the memory of the host: a 7B model can then
    be trained in full on one GPU of 141 GB, for a few more seconds per update."""
    clip_norm: float = 1.0
    """Maximum norm of the gradient; inf disables clipping."""

    def __post_init__(self) -> None:
        check_bounds("optim", self, lr=FROM_0, warmup_steps=FROM_0, betas=DECAY, eps=ABOVE_0)
        check_bounds("optim", self, weight_decay=FROM_0, clip_norm=LONGEST)


Surrogate = Literal["ppo", "gspo", "cispo"]
Scope = Literal["turn", "context", "episode"]
Divergence = Literal["k1", "k2", "k3"]
Aggregation = Literal[
    "token_mean",
    "sequence_mean_token_sum",
    "sequence_mean_token_mean",
    "episode_mean",
    "constant_length",
]


@dataclass(frozen=True)
class LossConfig:
    """PPO's clipped objective with a penalty for leaving the reference (MemAgent's settings)."""

    kind: Surrogate = "ppo"
    """What is clipped: every token's ratio (ppo), the ratio of a whole sequence (gspo), or the
    weight of a token's own gradient, which then never vanishes (cispo)."""
    scope: Scope = "turn"
    """What gspo calls a sequence: one reply, all replies of a context, or of an episode."""
    clip_low: float = 0.2
    """Ratios are clipped below 1 minus this; 1 or more disables that."""
    clip_high: float = 0.2
    dual_clip: float = 3.0
    """Bounds the loss where the advantage is negative and the ratio large; ppo only."""
    tis_cap: float = 0.0
    """Above 0: weigh tokens by min(trainer's / sampler's probability, this) for what the sampler
    computes differently, and take ratios against the trainer's own probabilities. 2 is usual."""
    kl_coef: float = 0.001
    """Weight of the KL penalty; 0 needs no reference model."""
    kl: Divergence = "k3"
    """Estimator of the divergence from the reference."""
    kl_in: Literal["loss", "reward"] = "loss"
    """Where the penalty is charged: per token in the loss, or summed over an episode in its
    reward."""
    entropy_coef: float = 0.0
    """Weight of an entropy bonus."""
    aggregate: Aggregation = "token_mean"
    """How tokens are weighted."""
    length: int = 1024
    """Divisor of constant_length."""

    def __post_init__(self) -> None:
        check_bounds("loss", self, clip_low=CAP, clip_high=CAP, dual_clip=ABOVE_1)
        check_bounds("loss", self, tis_cap=CAP, kl_coef=FROM_0, entropy_coef=FROM_0)
        check_bounds("loss", self, length=FROM_1)


@dataclass(frozen=True)
class CriticConfig:
    """A model that learns what reward to expect, for the advantages of `gae`.

    It starts with the policy's weights and a head of its own, and shares the settings `model` and
    `optim` with the policy, except for the learning rate.
    """

    path: str = ""
    """The model it starts from; empty takes the trained model."""
    lr: float = 1e-5
    warmup: int = 0
    """Steps at the start in which only the critic learns."""
    cliprange_value: float = 0.5
    """Clip range of a value in one step."""
    gamma: float = 1.0
    """Discount of a reward per token."""
    lam: float = 1.0
    """Lambda of GAE: 1 uses rewards alone, 0 the critic's next value alone."""

    def __post_init__(self) -> None:
        # Without a rate, or room to move, it would never learn.
        check_bounds("critic", self, lr=ABOVE_0, cliprange_value=ABOVE_0, warmup=FROM_0)
        check_bounds("critic", self, gamma=SHARE, lam=SHARE)

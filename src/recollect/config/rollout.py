"""What a person can set about episodes: those of training, those run again, held-out ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recollect.bounds import ABOVE_0, FINITE, FROM_0, FROM_1, NUCLEUS, Bounds, check_bounds
from recollect.errors import UserError

FROM_MINUS_1 = Bounds("to -1 or more", lambda number: number >= -1)


@dataclass(frozen=True)
class RolloutConfig:
    """The episodes of a step and how they are sampled."""

    tasks: int = 32
    """Tasks per step."""
    n: int = 16
    """Episodes per task: the group that is compared."""
    temperature: float = 1.0
    top_p: float = 1.0
    concurrency: int = 1024
    timeout: float | None = None
    """Seconds before an episode counts as failed."""
    failure_reward: float | None = None
    """Reward of an episode that failed through the agent's own fault; by default the lowest reward
    of its group, and at most 0."""
    ahead: int = 0
    """1 generates the next step's episodes during the update: faster, with weights that are one
    update old and a second copy of them."""
    refills: int = 0
    """Above 0: groups in which all did equally well are replaced by those of new tasks, up to this
    many times (DAPO's dynamic sampling)."""
    curriculum: tuple[int, ...] = (1,)
    """Multiples of the tasks' length to train at, one after the other."""
    curriculum_steps: int = 50
    """Steps at each multiple; the last one stays until the end."""
    sampler: Literal["embedded", "vllm"] = "embedded"
    """What draws the tokens of the model that learns: our own sampler on its very weights, or vLLM
    in a process beside it, which is handed the weights after every update."""
    sleep: bool = False
    """With sampler vllm on a GPU: vLLM gives its memory back during updates."""
    keep_groups: int = 1
    """Groups of training episodes stored at every step, with their texts; -1 stores all."""

    def __post_init__(self) -> None:
        if self.ahead not in (0, 1):
            raise UserError(f"rollout.ahead is {self.ahead}", "set --rollout.ahead to 0 or 1")
        check_bounds("rollout", self, tasks=FROM_1, n=FROM_1, top_p=NUCLEUS, refills=FROM_0)
        check_bounds("rollout", self, concurrency=FROM_1, timeout=ABOVE_0)
        check_bounds("rollout", self, failure_reward=FINITE, keep_groups=FROM_MINUS_1)
        if self.sleep and (self.sampler != "vllm" or self.ahead):
            raise UserError(
                "rollout.sleep is for vLLM, which must not sample during updates",
                "set --rollout.sampler vllm and --rollout.ahead 0, or leave --rollout.sleep out",
            )
        if self.refills and self.n < 2:
            raise UserError(
                "with one episode per task there is nothing to compare and nothing to learn from",
                "set --rollout.refills 0, or --rollout.n to 2 or more",
            )
        if self.curriculum_steps < 1 or not self.curriculum or min(self.curriculum) < 1:
            raise UserError(
                f"the curriculum is {self.curriculum}, {self.curriculum_steps} steps each",
                "set --rollout.curriculum to multiples such as 1 2 4, and"
                " --rollout.curriculum-steps to 1 or more",
            )

    def times(self, step: int) -> int:
        """Return the multiple of the tasks' length in a step, counted from 1."""
        return self.curriculum[min((step - 1) // self.curriculum_steps, len(self.curriculum) - 1)]


@dataclass(frozen=True)
class LocalConfig:
    """Run the rest of some episodes again from the memory they had (LoGo's local groups)."""

    n: int = 0
    """Episodes that continue from one place and are compared with one another; 0 disables this."""
    forks: int = 1
    """Places per task."""
    weight: float = 1.0
    """Weight of their loss relative to that of whole episodes."""

    def __post_init__(self) -> None:
        if self.n < 0 or self.n == 1:
            raise UserError(
                f"local.n is {self.n}: a single episode has nothing to be compared with",
                "set --local.n to 2 or more, or to 0",
            )
        check_bounds("local", self, forks=FROM_1, weight=ABOVE_0)


@dataclass(frozen=True)
class OverlongConfig:
    """Charge episodes for replies that come near a limit (DAPO's overlong shaping)."""

    limit: int = 0
    """Length of a reply, in tokens, that costs the whole charge; 0 disables it."""
    margin: int = 128
    """Tokens before the limit over which the charge rises."""
    charge: float = 1.0

    def __post_init__(self) -> None:
        check_bounds("overlong", self, limit=FROM_0, charge=FROM_0)
        if self.limit and not 0 < self.margin <= self.limit:
            raise UserError(
                f"overlong.margin is {self.margin}, of {self.limit} tokens",
                "set --overlong.margin to at least 1 and at most --overlong.limit",
            )


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
    distractors: tuple[int, ...] = ()
    """At the end, also measure with these multiples of the distractors, where the tasks have a
    method `crowded`; on as many tasks as at other lengths."""

    def __post_init__(self) -> None:
        check_bounds("val", self, tasks=FROM_1, n=FROM_1, temperature=FROM_0, top_p=NUCLEUS)
        check_bounds("val", self, lengths=FROM_1, length_tasks=FROM_1)
        check_bounds("val", self, distractors=FROM_1)

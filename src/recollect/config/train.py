"""What a person can set about a run: one frozen dataclass of frozen dataclasses. Plain data.

Agents, rewards and tasks are their own settings, and anybody's class may stand for one of ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from recollect.agents.base import Agent, check_part, memory_kind
from recollect.agents.fold import FoldAgent
from recollect.agents.function import as_agent
from recollect.agents.resources import Resources
from recollect.bounds import FROM_1, SHARE, check_bounds
from recollect.config.engine import CriticConfig, LossConfig, ModelConfig, OptimConfig
from recollect.config.roles import ModelsConfig
from recollect.config.rollout import (
    LocalConfig,
    OverlongConfig,
    RolloutConfig,
    ValidationConfig,
)
from recollect.errors import UserError
from recollect.memory.text import TextMemory
from recollect.rewards.answers import AnswerReward
from recollect.rewards.base import Reward
from recollect.rewards.function import as_reward
from recollect.runs.tracker_services import TrackerConfig
from recollect.tasks.base import TaskFamily, notes_of
from recollect.tasks.function import as_family


@dataclass(frozen=True)
class EmbedConfig:
    """Where the vectors of memories are, and what embeds new ones."""

    cache: Path | None = None
    """The folder that `recollect data embed` filled; without it only words can be searched."""
    model: str = "minilm"
    """As given to `recollect data embed`, like the rest."""
    url: str = ""
    dtype: Literal["float32", "float16"] = "float32"
    device: str = "auto"
    """Where a local model runs; auto is where the trained one does, and on a cluster the CPU."""


MAY_CHANGE = (
    *("code", "folder", "keep", "name", "resume", "save_freq", "steps", "trackers", "tracking"),
    *("model.device", "model.threads", "model.cache_gib", "model.drafts", "rollout.concurrency"),
    *("rollout.timeout", "rollout.keep_groups", "rollout.sampler", "rollout.sleep"),
    *("models.memory", "models.answer", "models.api_key_env", "models.timeout"),
    *("models.retries", "models.backoff", "models.concurrency", "models.grace"),
    *("reward.reader_url", "reward.judge_url", "reward.answers", "embed.url", "embed.device"),
)
"""Settings that a resumed run may change: where and how fast it runs, not what it learns."""


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides a training run."""

    name: str
    """Name of the run and its folder."""
    model: ModelConfig
    """The model that learns, in every trainable role."""
    tasks: TaskFamily
    agent: Agent = FoldAgent()
    models: ModelsConfig = ModelsConfig()
    """The model of each role."""
    reward: Reward = AnswerReward()
    embed: EmbedConfig = EmbedConfig()
    rollout: RolloutConfig = RolloutConfig()
    advantage: Literal[
        "grpo", "grpo_std", "rloo", "reinforce_pp", "reinforce_pp_baseline", "gdpo", "gae"
    ] = "grpo"
    """How advantages are computed: within a group of siblings, over the whole batch (reinforce_pp),
    or per token with a critic (gae)."""
    components: tuple[str, ...] = ()
    """The parts of the reward, by the names of their scores, that gdpo compares separately."""
    outcome_share: float = 1.0
    """Share of the advantage that comes from the outcome. The rest pays every rewriting of the
    memory for the words of the answers that it gained; ReMemR1 uses 0.8."""
    negative_weight: float = 1.0
    """How much an advantage below 0 counts, beside one above. 0 learns only from the episodes that
    did better than their siblings, as RAFT does."""
    local: LocalConfig = LocalConfig()
    critic: CriticConfig = CriticConfig()
    overlong: OverlongConfig = OverlongConfig()
    loss: LossConfig = LossConfig()
    optim: OptimConfig = OptimConfig()
    updates_per_step: int = 1
    """Optimiser steps per batch, whatever the number of contexts in it."""
    epochs: int = 1
    """Passes over each batch, each of `updates_per_step` optimiser steps."""
    token_budget: int = 16384
    """Tokens computed at once in an update; a prefix that samples share counts once."""
    val: ValidationConfig = ValidationConfig()
    seed: int = 0
    steps: int = 100
    test_freq: int = 5
    """Steps between validations."""
    save_freq: int = 10
    """Steps between checkpoints; one is also written at the end."""
    keep: int = 2
    """Checkpoints to keep."""
    folder: Path = field(default_factory=lambda: Path("runs"))
    """The folder that holds the runs, each in a folder of its own name."""
    resume: str = "auto"
    """`auto` continues the run in the folder, `never` refuses a folder that holds a run, and a path
    names the checkpoint to start from."""
    preset: str = ""
    """The preset that the settings started from."""
    trackers: tuple[str, ...] = ()
    """Where metrics go beside metrics.jsonl: tensorboard, wandb, swanlab, trackio, mlflow."""
    tracking: TrackerConfig = TrackerConfig()

    def __post_init__(self) -> None:
        # A function or a class may stand for a part.
        object.__setattr__(self, "agent", as_agent(self.agent))
        object.__setattr__(self, "reward", as_reward(self.reward))
        object.__setattr__(self, "tasks", as_family(self.tasks))
        check_name(self.name)
        check_bounds("", self, outcome_share=SHARE, negative_weight=SHARE)
        check_bounds("", self, updates_per_step=FROM_1, epochs=FROM_1)
        check_bounds("", self, steps=FROM_1, test_freq=FROM_1, save_freq=FROM_1, keep=FROM_1)
        check_bounds("", self, token_budget=FROM_1)
        if self.updates_per_step > self.rollout.tasks:
            raise UserError(
                f"{self.updates_per_step} updates cannot share {self.rollout.tasks} tasks",
                "set --updates-per-step to at most --rollout.tasks",
            )
        if not 0 < self.rollout.temperature < math.inf:
            raise UserError(
                f"rollout.temperature is {self.rollout.temperature}: all episodes would be equal",
                "set --rollout.temperature above 0",
            )
        if (self.advantage == "gdpo") != bool(self.components):
            raise UserError(
                "--advantage gdpo and --components go together",
                "set --advantage gdpo with --components, such as --components answer, or neither",
            )
        if self.advantage == "gdpo" and (self.overlong.limit or self.loss.kl_in == "reward"):
            raise UserError(
                "gdpo ignores the whole reward, which these charges lower",
                "set --overlong.limit 0 and --loss.kl-in loss, or another --advantage",
            )
        self._check_critic()
        self._check_parts()

    def _check_parts(self) -> None:
        """Let agent and reward refuse what they cannot work with."""
        kind = memory_kind(self.agent)
        if self.outcome_share < 1 and kind is not None and not issubclass(kind, TextMemory):
            raise UserError(
                "step rewards need an agent whose memory is one text",
                "set --outcome-share 1, or start from a preset with a fold",
            )
        parts = self.resources
        check_part(self.agent, parts)
        check_part(self.reward, parts)

    def _check_critic(self) -> None:
        if self.advantage != "gae":
            if self.critic != CriticConfig():
                raise UserError(
                    f"the advantage {self.advantage} has no critic",
                    "set --advantage gae, or leave the settings of --critic out",
                )
            return
        shares = self.outcome_share < 1 or self.negative_weight < 1
        if shares or self.rollout.refills or self.local.n:
            raise UserError(
                "gae works without step rewards, negative weights, refills and local groups",
                "set --outcome-share 1, --negative-weight 1, --rollout.refills 0 and --local.n 0,"
                " or another --advantage",
            )
        if self.critic.warmup >= self.steps:
            raise UserError(
                f"in {self.steps} steps with a warm-up of {self.critic.warmup} only the critic"
                " would learn",
                "set --critic.warmup below --steps",
            )

    @property
    def resources(self) -> Resources:
        """What the parts of a run know of one another before anything is opened."""
        return Resources(
            self.agent,
            self.reward,
            self.tasks,
            memory_kind(self.agent),
            self.outcome_share,
            self.embed.cache is not None,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know about settings that do less, or more, than they say."""
        loss, top_p = self.loss, self.rollout.top_p
        found = {
            f"rollout.n is 1: {self.advantage} has no siblings to compare an episode with, so its"
            " whole reward is its advantage; set 2 or more": (
                self.rollout.n == 1 and self.advantage not in ("reinforce_pp", "gae")
            ),
            f"rollout.top_p is {top_p}: tokens are drawn from the likeliest alone, but learned as"
            " if drawn from all; with 1 both are the same": top_p < 1,
            "loss.kl_in is reward, but with a loss.kl_coef of 0 nothing is charged": (
                loss.kl_in == "reward" and not loss.kl_coef
            ),
            f"loss.scope {loss.scope} is gspo's: {loss.kind} takes every token alone": (
                loss.scope != "turn" and loss.kind != "gspo"
            ),
        }
        return (*notes_of(self.tasks), *(note for note, holds in found.items() if holds))


def check_name(name: str) -> None:
    """Refuse a run's name that leads out of its folder."""
    path = Path(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or not name.isprintable():
        raise UserError(
            f"the name {name!r} is not a folder inside the folder of runs",
            "set --name to a word, and --folder to where runs are written",
        )

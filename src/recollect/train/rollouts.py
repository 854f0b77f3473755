"""What a run works with: its models, agent and reward, and the episodes they make together.

Knows nothing of updates, run folders or checkpoints.
"""

from __future__ import annotations

import gc
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from recollect.agents.base import Agent, check_window
from recollect.chat.chat import Model
from recollect.config.stored import absolute
from recollect.config.train import TrainConfig
from recollect.errors import UserError
from recollect.forks import choose_forks, find_places
from recollect.models.model import LoadedModel
from recollect.rewards.base import Reward, is_per_batch
from recollect.rollout import Group, Rollout
from recollect.seeds import derive
from recollect.tasks.base import TaskFamily
from recollect.train.comparison import differs, learned_from
from recollect.train.critic import load_critic
from recollect.train.lengths import check_tasks
from recollect.train.roles import Roles
from recollect.train.watcher import Watcher, counter
from recollect.train.wiring import ask_servers, make_agent, make_reward


def keep_imports() -> None:
    """Spare the garbage collector what has been imported, once in a process.

    To look through torch and transformers takes it 0.2 to 0.4 s, in the middle of rollouts. A model
    is loaded later and can be freed. For a command: what a notebook holds is its own to free.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


@dataclass
class Rollouts:
    """What a run works with: one model that samples and learns, and fixed ones.

    A batch of episodes leaves nothing cached: an update makes it stale and needs its memory, and a
    resumed run, which has nothing of earlier batches, must compute what one never killed does.
    """

    config: TrainConfig
    roles: Roles
    agent: Agent
    critic: LoadedModel | None = None
    _reward: Reward | None = None

    @classmethod
    def open(cls, config: TrainConfig, learns: bool = True) -> Rollouts:
        """Load the model, put a sampler on its weights, and connect to fixed ones.

        What is needed for nothing but learning, a critic, is loaded only if `learns`.
        """
        config = absolute(config)
        ask_servers(config)  # before a model is loaded, which takes a while
        torch.manual_seed(derive(config.seed, "weights"))  # LoRA starts at random
        roles = Roles.open(config.models, config.model, config.rollout if learns else None)
        try:
            check_window(config.agent, roles.window)
            check_tasks(config, config.val.length_tasks if learns else config.val.tasks)
            critic = None
            if learns and config.advantage == "gae" and roles.trained:
                critic = load_critic(config.model, config.critic, roles.trained)
            return cls(config, roles, make_agent(config), critic)
        except BaseException:
            roles.close()  # nobody else would
            raise

    @property
    def model(self) -> LoadedModel:
        """The weights that learn."""
        if self.roles.trained is None:
            raise nothing_learns()
        return self.roles.trained

    def decode(self, role: str, ids: Sequence[int]) -> str:
        """Return the text of a role's tokens."""
        return self.roles.models[role].renderer.tokenizer.decode(ids)

    def rollout(self, temperature: float, top_p: float) -> Rollout:
        """Put every model into its role."""
        models = self.roles.sampling(temperature, top_p)
        settings = self.config.rollout
        reward = self.reward(models)
        return Rollout(self.agent, models, reward, settings.concurrency, settings.timeout)

    def reward(self, models: Mapping[str, Model]) -> Reward:
        """Return the run's reward; one that the policy reads for is new for every batch."""
        if self._reward is None or is_per_batch(self.config.reward):
            self._reward = make_reward(self.config, models)
        return self._reward

    async def generate(self, step: int, watcher: Watcher) -> list[Group]:
        """Run the step's training episodes."""
        settings = self.config.rollout
        times = settings.times(step)
        family = self.config.tasks.longer(times) if times > 1 else self.config.tasks
        rollout = self.rollout(settings.temperature, settings.top_p)
        # A step's tasks are its own, drawn on or not: what it does depends on no earlier step.
        unused = itertools.count((step - 1) * settings.tasks * (settings.refills + 1))
        groups: list[Group] = []
        met: Counter[str] = Counter()
        for _ in range(settings.refills + 1):
            missing = settings.tasks - sum(differs(self.config, group) for group in groups)
            if not missing:
                break
            indices = itertools.islice(unused, missing)
            tasks = [family.task(i, self.config.seed, "train") for i in indices]
            count = counter(watcher, "rollout", len(tasks) * settings.n)
            key = (self.config.seed, step)
            groups += await rollout.groups(tasks, settings.n, key, count, met)
        groups += await self._again(rollout, step, groups, watcher)
        self.roles.reset()
        return groups

    async def _again(
        self, rollout: Rollout, step: int, groups: list[Group], watcher: Watcher
    ) -> list[Group]:
        """Run the rest of some of a step's episodes again, where the settings ask for it."""
        local, key = self.config.local, (self.config.seed, step)
        if not local.n:
            return []
        forks = [
            fork
            for g, group in enumerate(learned_from(self.config, groups))
            for fork in choose_forks(group, local.forks, (*key, g))
        ]
        done = [episode for group in groups for episode in group if episode.ok]
        if done and all(len(episode.contexts) < 2 for episode in done):
            raise UserError(
                "episodes of a single context have no middle to be run again from",
                "set --local.n 0, or choose an agent that reads in several contexts",
            )
        if done and not find_places(done):
            watcher.note(
                f"step {step}: --local.n runs nothing again, because nobody who learns speaks after"
                " an episode's first context"
            )
        count = counter(watcher, "run again", len(forks) * local.n)
        return await rollout.again(forks, local.n, key, count)

    async def validate(
        self, watcher: Watcher, times: int = 1, tasks: int | None = None
    ) -> list[Group]:
        """Run held-out episodes, at a multiple of the training length."""
        family = self.config.tasks.longer(times)
        return await self.validate_on(family, watcher, f"{times}x", tasks or self.config.val.tasks)

    async def validate_on(
        self, family: TaskFamily, watcher: Watcher, what: str, tasks: int | None = None
    ) -> list[Group]:
        """Run episodes on held-out tasks of a family, as the settings sample them."""
        settings, seed = self.config.val, self.config.seed
        held_out = [family.task(i, seed, "test") for i in range(tasks or settings.length_tasks)]
        rollout = self.rollout(settings.temperature, settings.top_p)
        count = counter(watcher, f"validation at {what}", len(held_out) * settings.n)
        key = (self.config.seed, "validation")
        groups = await rollout.groups(held_out, settings.n, key, count)
        self.roles.reset()
        return groups


def nothing_learns() -> UserError:
    """Refuse a run without a role to train."""
    return UserError(
        "no role is trainable, so there is nothing to train",
        "set --models.memory or --models.answer to trainable, or measure with recollect eval",
    )

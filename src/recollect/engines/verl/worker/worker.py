"""A worker of a cluster: the agent, fixed models and reward of a run, made once per process."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from recollect.agents.base import Agent
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer, Tokenizer
from recollect.config.roles import ROLES, ModelsConfig
from recollect.engines.verl.environment import key_names
from recollect.engines.verl.run.folder import RunFolder
from recollect.engines.verl.run.task_store import TaskStore
from recollect.engines.verl.worker.leases import broker_line, cluster_agent
from recollect.engines.verl.worker.policy import ServedPolicy
from recollect.errors import UserError
from recollect.models.tokenizer import check_folder, load_tokenizer
from recollect.rewards.base import Reward, is_per_batch
from recollect.rollout import Rollout
from recollect.seeds import Key
from recollect.tasks.base import Split
from recollect.train.roles import clients_of, failures_of, served, with_sampling
from recollect.train.wiring import make_reward
from recollect.types import Episode, Sampling


@dataclass
class Worker:
    """Run episodes of one run in one process."""

    folder: RunFolder
    agent: Agent
    renderer: Renderer
    fixed: dict[str, Model]
    """Who speaks in the roles that are not trained."""
    slots: asyncio.Semaphore
    tasks: dict[Split, TaskStore]
    _reward: Reward | None = None
    _reward_of: Key | None = None

    @classmethod
    def open(cls, path: Path, workers: int) -> Worker:
        """Make what the settings of a run say; `workers` processes share its episodes."""
        folder = RunFolder(path)
        config = folder.config
        if key_names(config):
            from recollect.engines.verl.worker.broker import take_keys

            take_keys(str(path))
        tokenizer = load_tokenizer(check_folder(config.model.path))
        slots = asyncio.Semaphore(max(1, config.rollout.concurrency // workers))
        agent = cluster_agent(config, lambda: broker_line(str(path)))
        tasks: dict[Split, TaskStore] = {s: folder.tasks(s) for s in ("train", "test")}
        return cls(
            folder, agent, Renderer(tokenizer), fixed(config.models, tokenizer), slots, tasks
        )

    async def episode(
        self, policy: ServedPolicy, split: Split, index: int, session: int, step: int,
        sampling: Sampling, window: int,
    ) -> Episode:  # fmt: skip
        """Run one episode of a stored task, with the draws the embedded engine would make."""
        config = self.folder.config
        learns = Model(policy, self.renderer, window=window)
        models = {role: self.fixed.get(role, learns) for role in ROLES}
        models = with_sampling(config.models, models, sampling)
        reward = self._reward_for((split, step), models)
        rollout = Rollout(self.agent, models, reward, timeout=config.rollout.timeout)
        key = (config.seed, step) if split == "train" else (config.seed, "validation")
        async with self.slots:
            return await rollout.episode(self.tasks[split][index], session, key)

    def failed_calls(self) -> Counter[str]:
        """Count, since this was last asked, the failed attempts of calls to servers by kind."""
        return failures_of(clients_of(self.fixed.values()))

    def _reward_for(self, batch: Key, models: Mapping[str, Model]) -> Reward:
        """Return the reward; one that the policy reads for is new whenever the weights are."""
        stale = batch != self._reward_of and is_per_batch(self.folder.config.reward)
        if self._reward is None or stale:
            self._reward, self._reward_of = make_reward(self.folder.config, models), batch
        return self._reward


def fixed(models: ModelsConfig, tokenizer: Tokenizer) -> dict[str, Model]:
    """Connect to the models of the roles that are not trained."""
    found: dict[tuple[str, str], Model] = {}
    known = [tokenizer]
    for role in models.fixed:
        place = getattr(models, role)
        if not models.is_served(role):
            raise UserError(
                f"models.{role} is the folder {place}, which a cluster's workers cannot all load",
                f"serve it (recollect serve {place}) and give --models.{role} its address",
            )
        own = (place, getattr(models, f"{role}_id"))
        if own not in found:
            found[own] = served(models, role, known)
            known.append(found[own].renderer.tokenizer)
    return {
        role: found[getattr(models, role), getattr(models, f"{role}_id")] for role in models.fixed
    }


@lru_cache(maxsize=2)
def worker_of(path: str, workers: int) -> Worker:
    """Return this process's worker for a run."""
    return Worker.open(Path(path), workers)

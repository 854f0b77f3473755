"""The reward of a verifiers environment: its own rewards for the agent's answer."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from recollect.agents.resources import Resources
from recollect.errors import UserError
from recollect.memory.base import Memory
from recollect.rewards.base import Score
from recollect.tasks.verifiers import VerifiersTasks
from recollect.types import Episode


@dataclass(frozen=True)
class VerifiersReward:
    """Score the answer as its environment does; every reward and metric of it is a part."""

    family: VerifiersTasks | None = None
    """The tasks of the run; `bind` fills it in."""

    def check(self, resources: Resources) -> None:
        """Refuse tasks that are no environment's."""
        if not isinstance(resources.tasks, VerifiersTasks):
            raise UserError(
                "the reward verifiers scores tasks of a verifiers environment",
                "set --tasks verifiers:NAME, or another --reward",
            )

    def bind(self, resources: Resources) -> VerifiersReward:
        """Hold the environment whose tasks are scored."""
        tasks = resources.tasks
        return replace(self, family=tasks) if isinstance(tasks, VerifiersTasks) else self

    async def __call__(self, episode: Episode, memory: Memory) -> Score:
        """Score the first answer."""
        if self.family is None:
            raise UserError("the reward has no environment", "give it the family of tasks")
        trace = await self.family.score(episode.task.meta["verifiers"], episode.answers[0])
        rewards = {n: r.value for n, r in trace.rewards.items() if r is not None}
        if not rewards:
            raise UserError(
                f"no reward of {self.family.name} can be computed without its sandbox",
                "choose another environment, or another --reward",
            )
        parts = {**{n: v for n, v in trace.metrics.items() if v is not None}, **rewards}
        if not all(map(math.isfinite, parts.values())):
            raise ValueError(f"the environment's scores are not finite: {parts}")
        total = float(trace.reward)
        return Score(total, {**parts, "answer": total}, answers=[total])

"""Whether a user's own metric and reward say the same twice of what a trial's episodes came to.

What depends on chance, on the time or on the order of calls measures nothing that comes out again.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from recollect.agents.base import part_name
from recollect.config.modules import name_of
from recollect.config.train import TrainConfig
from recollect.errors import PASSING, called_by, place_of_function
from recollect.memory.base import Memory
from recollect.metrics import check_repeats, find_score
from recollect.rewards.base import Reward, Score
from recollect.rewards.function import FunctionReward
from recollect.rollout import Rollout
from recollect.types import Episode


@dataclass(frozen=True)
class Repeated:
    """A reward that is asked twice for every episode."""

    reward: Reward
    pairs: list[tuple[float, float]] = field(default_factory=list)
    """What it said of each episode."""

    async def __call__(self, episode: Episode, memory: Memory) -> Score:
        """Score the episode, and once more for comparison."""
        first = await self.reward(episode, memory)
        try:
            again = (await self.reward(episode, memory)).reward
        except PASSING:
            raise
        except Exception:
            again = float("nan")  # which equals nothing
        self.pairs.append((first.reward, again))
        return first


def repeating(config: TrainConfig, rollout: Rollout) -> Rollout:
    """Return a trial's rollout, which asks a plain function of a user's for its reward twice.

    What is async may ask a judge, who may change his mind.
    """
    own = config.reward
    plain = isinstance(own, FunctionReward) and not inspect.iscoroutinefunction(
        called_by(own.function)
    )
    return replace(rollout, reward=Repeated(rollout.reward)) if plain else rollout


def changed_reward(config: TrainConfig, rollout: Rollout) -> str:
    """Say that a reward gave one episode two numbers; nothing if it gave one."""
    pairs = rollout.reward.pairs if isinstance(rollout.reward, Repeated) else []
    for first, again in pairs:
        if first != again:
            own: Any = config.reward
            return (
                f"{place_of_function(own.function)}: the reward {part_name(own)} gave one"
                f" episode {first:.6g}, and asked again {again:.6g}: if a model judges, all is"
                " well; otherwise let it depend on the episode and the memory alone"
            )
    return ""


def check_metrics(config: TrainConfig, episodes: Sequence[Episode]) -> None:
    """Refuse an own metric that scores an answer of a trial otherwise when it is asked again."""
    given = (getattr(config.reward, "metric", None), config.tasks.metric)
    for metric in (one for one in given if callable(one)):
        name = name_of(metric) or part_name(metric)
        what = f"{place_of_function(metric)}: the metric {name}"
        for episode in episodes:
            pairs = zip(episode.answers, episode.task.questions, strict=False)
            for answer, question in list(pairs)[:1]:
                check_repeats(find_score(metric), answer, question, what)

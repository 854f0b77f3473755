"""A trial before a run: a mistake in a user's own code is found in seconds, not after a batch.

A run tries out a few episodes with its own models. A dry run rehearses with a policy that always
says the same, so that it needs no model.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from recollect.agents.base import is_ours, part_name
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.config.roles import ROLES, ModelsConfig
from recollect.config.train import TrainConfig
from recollect.errors import UserError, place_of, place_of_function
from recollect.memory.base import Memory
from recollect.policies.bytes import Utf8Tokenizer
from recollect.policies.scripted import ScriptedPolicy
from recollect.rewards.base import Reward, Score
from recollect.rollout import Rollout
from recollect.train.wiring import make_agent, make_reward
from recollect.types import Episode, Failure, Task

EPISODES = 4
"""A model may say what an agent cannot read: only a mistake that all episodes make stops a run."""
SAID = "yes"
"""What the policy of a rehearsal says."""
PLAIN = ("AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "OwnMistake",
         "TypeError", "UnboundLocalError")  # fmt: skip
"""Errors of code that no reply of a model can be the cause of."""


def needs_trial(config: TrainConfig) -> bool:
    """Tell whether a part of a run is the user's own, or a role is fixed, maybe the only one."""
    parts = (config.agent, config.reward, config.tasks)
    return bool(config.models.fixed) or not all(map(is_ours, parts))


async def try_out(config: TrainConfig, rollout: Rollout) -> None:
    """Run a few episodes; refuse a run whose code fails in all of them, or that trains nothing."""
    task = first_task(config)
    with _unawaited():
        [episodes] = await rollout.groups([task], EPISODES, (config.seed, "trial"))
    if found := mistake(episodes):
        raise UserError(
            f"{found.place}: {found.kind}: {found.message} (in a trial episode)",
            _fix(found, "correct it, then run the same command again"),
        )
    refuse_silent(config.models, episodes)


def rehearse(config: TrainConfig) -> list[str]:
    """Run an episode without a model; refuse plain mistakes, and return what may be one."""
    if not needs_trial(config):
        return []
    tokenizer = Utf8Tokenizer()
    model = Model(ScriptedPolicy(tokenizer, lambda _prompt: SAID), Renderer(tokenizer))
    own = not is_ours(config.reward)
    reward: Reward = make_reward(config, dict.fromkeys(ROLES, model)) if own else NoReward()
    rollout = Rollout(make_agent(config), dict.fromkeys(ROLES, model), reward, timeout=60)
    task = first_task(config)
    with _unawaited():
        [episodes] = asyncio.run(rollout.groups([task], 1, (config.seed, "rehearsal")))
    refuse_silent(config.models, episodes)
    found = mistake(episodes)
    if found is None:
        return []
    if found.kind in PLAIN:
        what = f"{found.place}: {found.kind}: {found.message}"
        raise UserError(what, _fix(found, "correct that line"))
    return [f"{found.place}: {found.kind}: {found.message}, after a model that says {SAID!r}"]


def first_task(config: TrainConfig) -> Task:
    """Make a family's first task; refuse one that a user's own code fails to make."""
    try:
        task: Any = config.tasks.task(0, config.seed, "train")
    except UserError:
        raise
    except Exception as error:
        if not (place := place_of(error)):
            raise
        raise UserError(f"{place}: {type(error).__name__}: {error}", "correct that line") from error
    if not isinstance(task, Task):
        name = part_name(config.tasks)
        place = place_of_function(config.tasks.task)
        raise UserError(
            f"{place}: {name}.task returned {task!r:.80}, which is not a Task", "return a Task"
        )
    found: Task = task
    return found


@contextmanager
def _unawaited() -> Iterator[None]:
    """Silence warnings about replies that were never awaited: the mistake is reported anyway."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        yield
        gc.collect()


def _fix(found: Failure, usual: str) -> str:
    return "await it" if "'coroutine' object" in found.message else usual


@dataclass(frozen=True)
class NoReward:
    """Stands for a reward that would have to ask a model."""

    async def __call__(self, episode: Episode, memory: Memory) -> Score:
        """Give nothing."""
        return Score(0.0)


def mistake(episodes: Sequence[Episode]) -> Failure | None:
    """Return the first failure if all episodes failed in a user's own code."""
    failures = [episode.failure for episode in episodes]
    if all(failure is not None and failure.place for failure in failures):
        return failures[0]
    return None


def refuse_silent(models: ModelsConfig, episodes: Sequence[Episode]) -> None:
    """Refuse a run in which only fixed models speak: it would train nothing."""
    spoken = {c.role for e in episodes if e.ok for c in e.contexts if c.turns}
    learning, speaking = " and ".join(models.learning), " and ".join(sorted(spoken))
    if not spoken and all(episode.ok for episode in episodes):
        raise UserError(
            "nothing would be trained: the agent answers without asking a model",
            "let it say something in a chat: await chats.open().say(...)",
        )
    if spoken and spoken.isdisjoint(models.learning):
        raise UserError(
            f"nothing would be trained: {learning} learns, and the agent speaks as {speaking} only",
            f"set --models.{sorted(spoken)[0]} trainable, or choose another agent",
        )

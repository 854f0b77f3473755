"""Rollout: run many episodes at once; a failure is recorded with who caused it."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

from recollect.agents.base import (
    Agent,
    as_shown,
    checked_answers,
    kept_ops,
    open_memory,
    part_name,
    said_in,
    sees_answers,
)
from recollect.chat.chat import Chats, Model
from recollect.concurrency.deadlines import Deadline, OutOfTime
from recollect.concurrency.garbage import rarely_collected
from recollect.concurrency.many import concurrently
from recollect.concurrency.stop import Interrupted, ending
from recollect.errors import BoundaryError, OwnMistake, UserError, boundary, place_of
from recollect.forks import Fork
from recollect.memory.base import Memory
from recollect.memory.text import TextMemory
from recollect.rewards.base import Reward, Score
from recollect.seeds import Key
from recollect.types import Context, Episode, Failure, Task

Group = list[Episode]
"""The episodes of one task, compared with one another."""


@dataclass(frozen=True)
class Start:
    """Where the episodes of a group begin."""

    task: Task
    key: Key
    """With the episode's number it seeds every draw."""
    replayed: Sequence[Context] = ()
    """What was said before, in contexts of another episode."""


@dataclass(frozen=True)
class Rollout:
    """How episodes are run: which agent, which models, what is rewarded."""

    agent: Agent
    models: Mapping[str, Model]
    reward: Reward
    concurrency: int = 1024
    """Episodes in flight at once."""
    timeout: float | None = None
    """Seconds before an episode counts as failed. A reply of a model that learns is still awaited,
    for as long again."""
    sees: bool | None = None
    """Whether the agent is shown the accepted answers; None asks it anew for every episode."""

    _readings: WeakValueDictionary[Hashable, Any] = field(
        default_factory=WeakValueDictionary, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise UserError(
                f"rollout.concurrency must be at least 1, got {self.concurrency}",
                "set --rollout.concurrency to 1 or more",
            )

    async def groups(
        self,
        tasks: Sequence[Task],
        n: int,
        key: Key,
        on_episode: Callable[[Episode], None] = lambda _episode: None,
        met: Counter[str] | None = None,
    ) -> list[Group]:
        """Run `n` episodes of every task; return one group per task, in order.

        A task that comes again is drawn for anew; `met` counts those of earlier calls.
        """
        met = Counter() if met is None else met
        starts = []
        for task in tasks:
            times = met[task.id]
            starts.append(Start(task, (*key, "lap", times) if times else key))
            met[task.id] += 1
        return await self._grouped(starts, n, on_episode)

    async def again(
        self,
        forks: Sequence[Fork],
        n: int,
        key: Key,
        on_episode: Callable[[Episode], None] = lambda _episode: None,
    ) -> list[Group]:
        """Run the rest of episodes `n` times from each fork; return one group per fork."""
        starts = [
            Start(fork.episode.task, (*key, "again", fork.episode.rollout, fork.at), fork.replayed)
            for fork in forks
        ]
        return await self._grouped(starts, n, on_episode)

    async def _grouped(
        self, starts: Sequence[Start], n: int, on_episode: Callable[[Episode], None]
    ) -> list[Group]:
        slots = asyncio.Semaphore(self.concurrency)

        async def one(start: Start, rollout: int) -> Episode:
            async with slots:
                episode = await self.episode(start.task, rollout, start.key, start.replayed)
            on_episode(episode)
            return episode

        with rarely_collected():
            episodes = await concurrently(one(start, i) for start in starts for i in range(n))
        return [episodes[at : at + n] for at in range(0, len(episodes), n)]

    async def episode(
        self, task: Task, rollout: int, key: Key, replayed: Sequence[Context] = ()
    ) -> Episode:
        """Run one episode to its reward, or to the failure that ended it.

        It replays contexts of another episode and continues from there.
        """
        started = time.perf_counter()
        chats = Chats(
            self.models,
            (*key, task.id, rollout),
            replayed=replayed,
            questions=len(task.questions),
            readings=self._readings,
        )
        episode = Episode(task, rollout, forked=len(replayed))
        deadline = Deadline(self.timeout)
        learns = any(model.trainable for model in self.models.values())
        try:
            await deadline.run(self._run(episode, chats), patient=learns)
        except (BoundaryError, OutOfTime) as error:
            episode.failure = _failure(error, deadline, finished=bool(episode.answers))
        episode.seconds = time.perf_counter() - started
        return episode

    async def _run(self, episode: Episode, chats: Chats) -> None:
        if self.timeout is not None:
            _look_after_this_task()
        sees = sees_answers(self.agent) if self.sees is None else self.sees
        task = as_shown(episode.task, sees)
        with boundary("memory"):
            memory = open_memory(self.agent, task)
            episode.ops = memory.ops
        if isinstance(memory, TextMemory):
            memory.writer = lambda: chats.spoken
        episode.namespace = getattr(memory, "namespace", "")  # of a trial of a shared base
        try:
            await self._play(episode, task, chats, memory)
            with boundary("reward"):
                score = await self.reward(episode, memory)
        finally:
            with boundary("memory"):
                memory.close()
        with boundary("reward"):
            _enter(episode, score)

    async def _play(self, episode: Episode, task: Task, chats: Chats, memory: Memory) -> None:
        """Run the agent, and keep what it did, before anybody else sees the episode."""
        asked, answers = len(episode.task.questions), None
        try:
            with boundary("agent"):
                found = await self._answers(task, chats, memory)
                answers = checked_answers(self.agent, found, asked)
        finally:
            chats.end()
            chats.settle(asked, failed=answers is None)
            episode.contexts = chats.kept
            with boundary("memory"):
                episode.ops, odd = kept_ops(self.agent, memory)
        with boundary("agent"):
            said_in(chats, self.agent)
        with boundary("memory"):
            if odd is not None:
                raise odd
        episode.answers = answers

    async def _answers(self, task: Task, chats: Chats, memory: Memory) -> list[str]:
        """Run the agent; what would end the whole run is its own mistake."""
        try:
            return await self.agent.run(task, chats, memory)
        except Interrupted:
            raise
        except (SystemExit, KeyboardInterrupt) as error:
            what = f"the agent {part_name(self.agent)} ended Python ({ending(error)})"
            raise OwnMistake(what, place_of(error)) from error
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise  # the run's own doing: it was stopped, or its time is over
            what = f"the agent {part_name(self.agent)} awaited something that was cancelled"
            raise OwnMistake(what, place_of(error)) from None


def _look_after_this_task() -> None:
    """Let it end unseen: a time limit has one of its own, which nobody looks at after a stop.

    A frame of an episode must not know it: its error would hold itself, and all that was read.
    """
    if own := asyncio.current_task():
        own.add_done_callback(_retrieve)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception so asyncio does not warn when nobody waits for the task any more."""
    if not task.cancelled():
        task.exception()


def _is_cancelled() -> bool:
    """Tell whether the task that runs is being cancelled."""
    current = asyncio.current_task()
    return current is not None and bool(current.cancelling())


def _failure(error: BoundaryError | OutOfTime, deadline: Deadline, finished: bool) -> Failure:
    """Say what ended an episode, and who caused it; see docs/algorithms.md."""
    if isinstance(error, OutOfTime):
        found = Failure("timeout", "TimeoutError", str(error))
    else:
        found = error.failure
    limit = isinstance(error, OutOfTime) or (
        error.name == "agent" and isinstance(error.cause.__cause__, asyncio.CancelledError)
    )
    if limit:  # the episode's, or one that the agent's own code has set
        found = replace(found, fault="agent" if deadline.was_agents else "environment")
    if finished and found.fault == "environment":
        found = replace(found, fault="measurement")
    return found


def _enter(episode: Episode, score: Score) -> None:
    """Write a score into its episode; one that is not a number would spoil the whole group."""
    own = list(score.contexts) or [None] * len(episode.contexts)
    steps = list(score.steps) or [{}] * len(episode.contexts)
    single = [reward for step in steps for reward in step.values()]
    if not all(math.isfinite(r) for r in (score.reward, *own, *single) if r is not None):
        raise ValueError(f"a reward is not finite: {score.reward}, by context {list(own)}")
    for context, reward, step in zip(episode.contexts, own, steps, strict=True):
        context.reward = reward
        context.steps = dict(step)
    episode.reward = score.reward
    episode.scores = dict(score.parts)
    episode.answer_scores = list(score.answers)

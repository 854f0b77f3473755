"""Run the episodes that are wanted and not there yet, many at once, each stored as it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from recollect.agents.base import Agent, given_early, sees_answers
from recollect.agents.baselines import is_bound
from recollect.chat.chat import Model
from recollect.chat.rendering import Tokenizer
from recollect.concurrency.many import concurrently
from recollect.errors import UserError
from recollect.evaluation.calls import Calls, recorded
from recollect.evaluation.jobs import Grid, Job
from recollect.evaluation.records import Record, episode_record
from recollect.evaluation.texts import Texts
from recollect.memory.base import Memory
from recollect.rewards.base import Score
from recollect.rollout import Rollout
from recollect.tasks.lengths import estimate_tokens
from recollect.types import Episode

ENCODED = 100_000
"""Characters of a memory above which its tokens are estimated: encoding takes too long."""

OnEpisode = Callable[[Record], None]


@dataclass(frozen=True)
class MemorySize:
    """Measure an episode's memory where a reward would be computed: it is still open there."""

    tokenizer: Tokenizer

    async def __call__(self, episode: Episode, memory: Memory) -> Score:
        """Count the characters and tokens of all texts in the memory."""
        texts = list(_texts(memory.snapshot()))
        chars = sum(map(len, texts))
        count = estimate_tokens if chars > ENCODED else self._count
        return Score(0.0, {"chars": float(chars), "tokens": float(sum(map(count, texts)))})

    def _count(self, text: str) -> int:
        return len(self.tokenizer.encode(text)) if text else 0


@dataclass(frozen=True)
class Started:
    """When an evaluation began; what follows is counted from there, and no system clock that is set
    back makes it earlier."""

    at: float = field(default_factory=lambda: time.time())
    clock: float = field(default_factory=lambda: time.monotonic())
    """The same moment on the clock that all processes of a machine share."""

    def now(self) -> float:
        """Return the present moment as the system's clock would show it if nobody had set it."""
        return self.at + time.monotonic() - self.clock


class Store(Protocol):
    """Where episodes and their calls are kept."""

    @property
    def done(self) -> Collection[str]:
        """Names of the episodes that are not run again."""

    def calls(self, episode: str) -> Calls:
        """Return the replies that an episode got before it was cut short."""

    def add(self, record: Record) -> None:
        """Keep an episode."""


@dataclass
class Harness:
    """Agents and models, and where what they do is kept."""

    grid: Grid
    agents: Mapping[str, Agent]
    """With what they need from the run."""
    models: Mapping[str, Model]
    store: Store
    concurrency: int = 32
    """Episodes in flight at once."""
    timeout: float | None = None
    """Seconds before an episode counts as failed."""
    own: Mapping[str, Mapping[str, Model]] = field(default_factory=dict)
    """Models of agents that bring their own."""

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise UserError(
                f"concurrency must be at least 1, got {self.concurrency}",
                "set --concurrency to 1 or more",
            )
        self.started = Started()
        self._texts = Texts(self.grid.families, self.grid.split)

    async def run(self, on_episode: OnEpisode = lambda _record: None) -> None:
        """Run what is missing; what another process had finished is not run again."""
        jobs = (job for job in self.grid.jobs() if job.id not in self.store.done)

        async def work() -> None:
            # All workers take from one iterator: nothing waits while there is something to do.
            for job in jobs:
                on_episode(await self.episode(job))

        await concurrently(work() for _ in range(self.concurrency))

    async def episode(self, job: Job) -> Record:
        """Run one episode and keep it."""
        text = self._texts.get(job.task, job.seed, job.index)
        calls = self.store.calls(job.id)
        speakers = self.own.get(job.agent, self.models)
        tokenizers = {role: model.renderer.tokenizer for role, model in speakers.items()}
        models = {role: recorded(model, role, calls) for role, model in speakers.items()}
        size = MemorySize(tokenizers["memory"])
        agent = self.agents[job.agent]
        sees, is_bound_now = sees_answers(agent), is_bound(agent)
        rollout = Rollout(agent, models, size, timeout=self.timeout, sees=sees)
        episode = await rollout.episode(text.task, 0, job.key)
        record = episode_record(job, text, episode, calls, tokenizers)
        record |= {"bound": True} if is_bound_now else {}
        record |= {"early": True} if given_early(agent, text.task) else {}
        if self.timeout is not None:
            # Replies of before cost an episode no time: it had its whole limit beside theirs.
            longest = max(self.timeout, round(episode.seconds, 3))
            record["seconds"] = min(record["seconds"], longest)
        record |= {"run": round(self.started.at, 3), "at": round(self.started.now(), 3)}
        self.store.add(record)
        return record


def _texts(value: Any) -> Iterator[str]:
    """Find the texts in plain data; names of fields do not count."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        # Of an entry only what it says counts, not its id or its date.
        own = [value["content"]] if "content" in value else value.values()
        for inner in own:
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)

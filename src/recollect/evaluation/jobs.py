"""What is to be run: every agent on every task of every set, once per seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from recollect.errors import UserError
from recollect.seeds import Key
from recollect.tasks.base import Split, TaskFamily


@dataclass(frozen=True, slots=True)
class Job:
    """One episode that is wanted."""

    task: str
    """The task set, such as hotpotqa@7k."""
    agent: str
    seed: int
    index: int

    @property
    def id(self) -> str:
        """The episode's name in every file."""
        return f"{self.task}|{self.agent}|{self.seed}|{self.index}"

    @property
    def key(self) -> Key:
        """What seeds its draws, with the task's own name."""
        return ("evaluation", self.task, self.seed, self.agent)


@dataclass(frozen=True)
class Grid:
    """Task sets by agents by seeds by tasks."""

    families: Mapping[str, TaskFamily]
    agents: Sequence[str]
    n: int
    """Tasks per set; a set that has fewer gives all it has."""
    seeds: int
    split: Split = "test"
    first: int = 0
    """The first seed."""

    def __post_init__(self) -> None:
        for name, value in (("n", self.n), ("seeds", self.seeds)):
            if value < 1:
                raise UserError(f"{name} is {value}", f"set --{name} to 1 or more")

    def tasks(self, name: str) -> int:
        """Return how many tasks of a set are asked for and there."""
        size = self.families[name].size(self.split)
        return self.n if size is None else min(self.n, size)

    def cells(self) -> dict[tuple[str, str], int]:
        """Return how many episodes every agent has on every set."""
        return {
            (name, agent): self.seeds * self.tasks(name)
            for name in self.families
            for agent in self.agents
        }

    def jobs(self) -> Iterator[Job]:
        """Go through all sets at once, so that a table half done says something of each.

        The agents of a task follow one another: they share its text while it is held.
        """
        sizes = {name: self.tasks(name) for name in self.families}
        for seed in range(self.first, self.first + self.seeds):
            for index in range(max(sizes.values(), default=0)):
                for name, size in sizes.items():
                    if index < size:
                        for agent in self.agents:
                            yield Job(name, agent, seed, index)

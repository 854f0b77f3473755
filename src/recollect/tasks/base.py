"""The TaskFamily protocol: tasks made from a seed or read from data, as long as one likes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol, Self, runtime_checkable

import numpy as np

from recollect.foreign import shown
from recollect.memory.corpus import Corpus
from recollect.metrics import Metric
from recollect.types import Task

Split = Literal["train", "test"]
GOLD = ("questions", "dia_ids", "facts", "depths", "verifiers")
"""What tasks of ours know in `meta` about right answers and where they are, hidden from agents."""
Vectors = Callable[[Sequence[str]], np.ndarray]
"""Look up the vectors of texts, as an embedding cache does."""


@runtime_checkable
class TaskFamily(Protocol):
    """Make tasks of one kind. The same index, seed and split always give the same task."""

    @property
    def name(self) -> str:
        """The family's name; tasks carry it as their source."""

    @property
    def metric(self) -> Metric | str:
        """The score that counts first: its name in the table of metrics, or a function.

        A family may also have `scorers`: its benchmark's published scores, by their names.
        """

    def size(self, split: Split) -> int | None:
        """Return how many different tasks a split has; None where they are made without end."""

    def task(self, index: int, seed: int = 0, split: Split = "train") -> Task:
        """Make one task; no task of one split is a task of the other."""

    def longer(self, times: int) -> Self:
        """Return the same family with `times` as much text."""


@runtime_checkable
class RememberedFamily(TaskFamily, Protocol):
    """Tasks that come with memories: a task's meta names its base as `namespace`."""

    def corpora(self, vectors: Vectors | None = None) -> Mapping[str, Corpus]:
        """Return the memories of every conversation, by name; without vectors only words count."""


@runtime_checkable
class SharedBases(Protocol):
    """Tasks of which several are about the same memories."""

    def siblings(self, task: Task) -> Sequence[Task]:
        """Return the other tasks about a task's memories, of its split, always in one order."""


@runtime_checkable
class Described(Protocol):
    """Tasks read from a user's own data, which say what was read, mapped and dropped."""

    @property
    def notes(self) -> Sequence[str]:
        """One line each."""


def notes_of(family: TaskFamily) -> tuple[str, ...]:
    """Return what a family says about its data, fit for a screen."""
    found = family.notes if isinstance(family, Described) else ()
    return tuple(shown(str(note)) for note in found) if isinstance(found, tuple | list) else ()


def at_most(count: int) -> str:
    """Say how to ask for no more held-out tasks than there are."""
    return f"ask for at most {count}: --val.tasks of a run, --n of an evaluation"


def text_of(task: Task) -> int | None:
    """Return a hash of what an agent reads of a task; None of a lazy text, however long it is."""
    if not isinstance(task.chunks, list | tuple):
        return None
    return hash((*task.chunks, None, *(question.text for question in task.questions)))


def copies(texts: Iterable[int | None]) -> int:
    """Count the tasks that others are copies of, by the hashes of their texts."""
    known = [text for text in texts if text is not None]
    return len(known) - len(set(known))


def said_copies(texts: Iterable[int | None], what: str = "held-out tasks") -> str:
    """Say that tasks are copies of others; nothing where each is asked once."""
    every = list(texts)
    again = copies(every)
    if not again:
        return ""
    return f"{again:,} of {len(every):,} {what} are copies of others, which add no evidence"

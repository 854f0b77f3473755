"""Tasks as they are made for their episodes: one at a time, hashed, and let go of afterwards."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from weakref import WeakValueDictionary

from recollect.errors import UserError
from recollect.tasks.base import Split, TaskFamily
from recollect.tasks.lengths import bytes_per_token
from recollect.types import Task

CHECKED = 32
"""Tasks of a set that are made once more to see that they are what stored episodes read ..."""
CHECKED_CHARS = 10_000_000
"""... and about how long they are together: of long ones there are fewer, but never less than 2."""

Place = tuple[int, int]
"""The seed and the index of a task."""
Stored = Mapping[Place, tuple[str, int]]
"""What episodes read: the hashes of their tasks, and how many characters these have."""


@dataclass(frozen=True)
class TaskText:
    """A task with what its text comes to."""

    task: Task
    hash: str
    """A hash of the chunks, the questions and all accepted answers."""
    chars: int
    tokens: int
    """Estimated from the bytes, the same for every model."""


def measure(task: Task) -> TaskText:
    """Go through a task's text once, holding no more than a chunk of it."""
    digest = blake2b(digest_size=16)
    size = chars = 0
    for chunk in task.chunks:
        data = chunk.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
        size += len(data)
        chars += len(chunk)
    asked = [(q.text, q.answers, q.category, q.evidence, q.position) for q in task.questions]
    digest.update(repr(asked).encode("utf-8", "surrogatepass"))
    # Lists of codes and numbers are denser than prose: their families say by how much.
    tokens = round(size / bytes_per_token(task.meta, f"task {task.id[:40]!r}"))
    return TaskText(task, digest.hexdigest(), chars, tokens)


def check_unchanged(
    stored: Mapping[str, Stored], families: Mapping[str, TaskFamily], split: Split
) -> None:
    """Refuse families that no longer make the tasks which stored episodes of them read."""
    for name, family in families.items():
        known, size = stored.get(name, {}), family.size(split)
        for seed, index in _some(known):
            there = size is None or index < size
            if not there or measure(family.task(index, seed, split)).hash != known[seed, index][0]:
                raise changed(f"{name}, task {index} of seed {seed}", "stored")


def _some(known: Stored) -> Collection[Place]:
    """Choose tasks from first to last, so few that hashing them takes no long time."""
    places = sorted(known)
    longest = max((chars for _hash, chars in known.values()), default=0)
    count = max(2, min(CHECKED, CHECKED_CHARS // max(1, longest)))
    steps = range(min(count, len(places)))
    return [places[step * (len(places) - 1) // max(1, len(steps) - 1)] for step in steps]


def changed(where: str, which: str) -> UserError:
    """Say that a task is not what some episodes read."""
    return UserError(
        f"{where}: the task's text is not what {which} episodes read: the data have changed since"
        " these were run, or the tasks differ each time they are made",
        "evaluate into a new folder with --out; let tasks of your own be the same in every"
        " process: sort what you take out of a set",
    )


class Texts:
    """Makes tasks; episodes that want the same one at the same time share it."""

    def __init__(self, families: Mapping[str, TaskFamily], split: Split) -> None:
        self.families = families
        self.split = split
        # Weak: a text is held as long as an episode reads it, and a few of them may be a lot.
        self._held: WeakValueDictionary[tuple[str, int, int], TaskText] = WeakValueDictionary()

    def get(self, name: str, seed: int, index: int) -> TaskText:
        """Return a task of a set."""
        key = (name, seed, index)
        held = self._held.get(key)
        if held is None:
            held = measure(self.families[name].task(index, seed, self.split))
            self._held[key] = held
        return held

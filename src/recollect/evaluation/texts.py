"""Tasks as they are made for their episodes: one at a time, hashed, and let go of afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from weakref import WeakValueDictionary

from recollect.tasks.base import Split, TaskFamily
from recollect.tasks.lengths import bytes_per_token
from recollect.types import Task


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

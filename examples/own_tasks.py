"""A task family of your own: texts with questions, made from a seed, as long as you like."""

import random
from dataclasses import dataclass, replace

from recollect import Question, Task, train

TREES = ("aspen", "oak", "pine", "silver", "cedar", "maple")


@dataclass(frozen=True)
class LastTree:
    """Somebody names a tree in every chunk; the last one counts."""

    name = "last_tree"
    metric = "boxed_match"
    chunks: int = 3

    def size(self, split):
        return None  # as many as are asked for

    def task(self, index, seed=0, split="train"):
        draw = random.Random(f"{seed} {split} {index}")  # the same task every time
        trees = draw.choices(TREES, k=self.chunks)
        question = Question("Which tree did I choose last?", (trees[-1],))
        texts = [f"I chose {tree}." for tree in trees]
        return Task(f"{split}-{seed}-{index}", texts, (question,), self.name)

    def longer(self, times):
        return replace(self, chunks=self.chunks * times)


if __name__ == "__main__":
    print(LastTree().task(0))
    small = {"rollout": {"tasks": 8}, "val": {"tasks": 32, "lengths": [1, 4], "length_tasks": 32}}
    result = train("demo", name="own_tasks", tasks=LastTree(), steps=3, **small, quiet=True)
    for times, found in result.lengths.items():
        print(f"{times}x the text: {found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]")

"""What edits of LoCoMo's memories can earn at all: fixed rules, and choices that know the reward.

    python -m benchmarks.curator_reach --data locomo10.json

The reward is that of benchmarks/curator_gpu.py, and no model takes part. A rule searches once, with
the question or its rare words, and edits what it found at one place.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.curator_gpu import REWARD
from benchmarks.curator_table import figure_of
from benchmarks.curator_teacher import LONGEST, rare_words
from recollect.agents.resources import Resources
from recollect.memory.corpus import Corpus
from recollect.memory.entries import Entry, Filter
from recollect.memory.store import Store
from recollect.metrics import cluster_scores, mean_interval
from recollect.rewards.base import Score
from recollect.tasks.conversations.locomo_files import LocomoOptions, build_locomo
from recollect.tasks.conversations.locomo_folder import Locomo
from recollect.types import Episode, Task

FOUND = 4
"""Memories that a search returns."""
Edit = Callable[[Task, Store], Awaitable[None]]


@dataclass(frozen=True)
class Search:
    """Search with the question or its rare words, among all memories or those of whom it names."""

    rare: bool
    person: bool

    async def __call__(self, task: Task, store: Store) -> list[Entry]:
        question, names = task.questions[0].text, tuple(store.corpus.spelt["speaker"])
        words = " ".join(rare_words(question, names)) or question
        asked = tuple(name for name in names if name in question) if self.person else ()
        query = words if self.rare else question
        hits = await store.search(query, FOUND, "bm25", Filter(speaker=asked))
        return [hit.entry for hit in hits]


def create(task: Task, store: Store, entry: Entry, subject: bool = True) -> None:
    """Copy a memory, after the question's rare words or as it is."""
    names = tuple(store.corpus.spelt["speaker"])
    text = " ".join(entry.content.split()[:LONGEST])
    words = (str(entry.metadata["speaker"]), *rare_words(task.questions[0].text, names))
    content = f"{' '.join(words)}: {text}" if subject else text
    store.add(content, {"evidence": entry.metadata["evidence"], "source": "agent_output"})


def copying(search: Search, places: Sequence[int], subject: bool = True) -> Edit:
    """Copy what was found at some places."""

    async def edit(task: Task, store: Store) -> None:
        found = await search(task, store)
        for entry in (found[i] for i in places if i < len(found)):
            create(task, store, entry, subject)

    return edit


def deleting(search: Search, place: int) -> Edit:
    """Delete what was found at one place."""

    async def edit(task: Task, store: Store) -> None:
        found = await search(task, store)
        if place < len(found):
            store.delete(found[place].id)

    return edit


async def nothing(_task: Task, _store: Store) -> None:
    """Leave the memories as they are."""


async def the_answer(task: Task, store: Store) -> None:
    """Write the question, the answer and its evidence, which nobody knows."""
    question = task.questions[0]
    evidence = tuple(task.meta["dia_ids"])
    store.add(f"{question.text} {question.answers[0]}", {"evidence": evidence})


ALL, PERSON = Search(False, False), Search(True, True)
RULES: Mapping[str, Edit] = {
    "do nothing": nothing,
    "write the answer with its evidence": the_answer,
    **{
        f"{name}: copy result {place + 1}": copying(search, (place,))
        for name, search in (("question, everybody", ALL), ("rare words, the person", PERSON))
        for place in range(FOUND)
    },
    "rare words, the person: copy results 1 and 2": copying(PERSON, (0, 1)),
    "the same without the rare words in front": copying(PERSON, (0, 1), subject=False),
    "question, everybody: delete result 1": deleting(ALL, 0),
}


def main() -> None:
    """Print what every rule earns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="locomo10.json, or a part of it")
    parser.add_argument("--every", type=int, default=1, help="take one question of this number")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "locomo"
        build_locomo(LocomoOptions(options.data, folder, observation=False, event_summary=False))
        family = Locomo(folder)
        parts = [(part, family.size(part)) for part in ("train", "test")]
        tasks = [family.task(i, 0, part) for part, size in parts for i in range(size)]
        asyncio.run(measure(family, tasks[:: options.every], family.corpora()))


async def measure(family: Locomo, tasks: Sequence[Task], corpora: Mapping[str, Corpus]) -> None:
    """Try every rule on every question, and choose the best copy with the reward in hand."""
    reward = REWARD.bind(Resources(tasks=family))

    async def score(task: Task, edit: Edit) -> Score:
        store = Store(corpora[task.meta["sample_id"]])
        await edit(task, store)
        return await reward(Episode(task, 0, answers=[""]), store)

    def show(name: str, rewards: Sequence[float]) -> None:
        pairs = zip(tasks, rewards, strict=True)
        found = mean_interval(cluster_scores((t.cluster, t.id, reward) for t, reward in pairs))
        better, worse = (sum(sign * r > 0 for r in rewards) / len(rewards) for sign in (1, -1))
        print(f"| {name} | {figure_of(found)} | {better:.2f} | {worse:.2f} |", flush=True)

    print(f"{len(tasks)} questions; reward with its 95% interval by conversation")
    print("| rule | reward | above 0 | below 0 |\n|---|---|---|---|")
    kept: dict[str, list[float]] = {}
    for name, edit in RULES.items():
        scores = [await score(task, edit) for task in tasks]
        kept[name] = [one.reward for one in scores]
        show(name, kept[name])
        if edit is nothing:
            perf = sum(one.parts["before"] for one in scores) / len(scores)
            print(f"| perf of the memories as they are | {perf:.3f} | | |")
    for start in ("question, everybody: copy", "rare words, the person: copy result "):
        choices = [
            own for name, own in kept.items() if name.startswith(start) and "and" not in name
        ]
        best = [max(0.0, *own) for own in zip(*choices, strict=True)]
        show(f"{start.partition(':')[0]}: the best of copying one or none", best)


if __name__ == "__main__":
    main()

"""memory_delta's panel: deleting what other questions need does not pay, and useful edits do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from recollect.agents.resources import Resources
from recollect.errors import UserError
from recollect.memory.corpus import Corpus
from recollect.memory.selection import Retrieval
from recollect.memory.store import Store
from recollect.rewards.base import Score
from recollect.rewards.memory_delta import MemoryDelta
from recollect.rewards.readers import EvidenceReader, cited_turns
from recollect.tasks.conversations.locomo_folder import Locomo
from recollect.tasks.made.world import World
from recollect.types import Episode, Task
from tests.support import world as worlds

Edit = Callable[[Task, Store], object]
Known = tuple[Locomo, Sequence[Task], Mapping[str, Corpus]]


def only_evidence(task: Task, store: Store) -> None:
    """The cheat: delete every memory that does not cite the evidence."""
    for entry in list(store.entries()):
        if not cited_turns(entry) & set(task.meta["dia_ids"]):
            store.delete(entry.id)


def everything(_task: Task, store: Store) -> None:
    for entry in list(store.entries()):
        store.delete(entry.id)


def the_fact(task: Task, store: Store) -> None:
    question = task.questions[0]
    fact = f"{question.text} {question.answers[0]}"
    store.add(fact, {"evidence": tuple(task.meta["dia_ids"])})


def rewards(known: Known, edit: Edit, **settings) -> list[Score]:
    family, tasks, corpora = known
    delta = MemoryDelta(**settings).bind(Resources(tasks=family))

    async def one(task: Task) -> Score:
        store = Store(corpora[task.meta["sample_id"]])
        edit(task, store)
        return await delta(Episode(task, 0, answers=[""]), store)

    async def main() -> list[Score]:
        return [await one(task) for task in tasks]

    return asyncio.run(main())


def mean(scores: Sequence[Score]) -> float:
    return sum(score.reward for score in scores) / len(scores)


@pytest.fixture(scope="module", params=["made up", "locomo"])
def known(request, tmp_path_factory) -> Known:
    folder: Path = tmp_path_factory.mktemp("panel")
    if request.param == "made up":
        loaded = worlds.made_up(folder)
        return Locomo(folder / "made_up"), loaded.tasks, loaded.corpora
    if not worlds.REAL.exists():
        pytest.skip("LoCoMo is not beside the repository")
    loaded = worlds.load(worlds.REAL, folder)
    step = len(loaded.tasks) // 40
    return Locomo(folder), loaded.tasks[::step][:40], loaded.corpora


def test_deleting_what_does_not_cite_the_evidence_loses_and_useful_edits_pay(known):
    assert mean(rewards(known, only_evidence, panel_weight=0.0)) > 0.2  # what could be farmed
    assert mean(rewards(known, only_evidence)) < 0
    assert mean(rewards(known, everything)) < 0
    assert mean(rewards(known, the_fact)) > 0.4


def test_writing_nothing_still_earns_exactly_zero(known):
    assert {score.reward for score in rewards(known, lambda _task, _store: None)} == {0.0}


def test_a_weight_of_0_asks_nobody_and_changes_no_digit(known):
    """As a reward that knows of no other questions."""
    family, tasks, corpora = known
    alone = rewards((None, tasks, corpora), only_evidence)
    assert rewards((family, tasks, corpora), only_evidence, panel_weight=0.0) == alone
    assert all("panel" not in score.parts for score in alone)


def test_the_published_modes_have_no_panel(known):
    for mode in ("new_only", "new+format"):
        assert all("panel" not in s.parts for s in rewards(known, the_fact, mode=mode))


def test_the_panel_is_fixed_and_its_baseline_is_read_once(known):
    """By base: whatever is asked, the same others are looked at, but for the question itself."""
    family, tasks, corpora = known
    read: list[str] = []

    class Counting(EvidenceReader):
        async def __call__(self, task, index, found):
            read.append(f"{task.id} {index}")
            return await super().__call__(task, index, found)

    async def main() -> None:
        bound = MemoryDelta().bind(Resources(tasks=family))
        delta = MemoryDelta(reads=Counting(), others=bound.others)
        for task in tasks[:6]:
            await delta(Episode(task, 0, answers=[""]), Store(corpora[task.meta["sample_id"]]))

    asyncio.run(main())
    assert len(read) == len(set(read))  # nothing changed, so nothing is read twice
    bases = len({task.meta["sample_id"] for task in tasks[:6]})
    assert len(read) <= 6 + bases * (4 * 8 + 1)


def test_a_panel_is_drawn_once_for_all_episodes_of_a_task(known):
    family, tasks, corpora = known
    asked: list[str] = []

    def others(task: Task) -> Sequence[Task]:
        asked.append(task.id)
        return family.siblings(task)

    async def main() -> list[Score]:
        delta = MemoryDelta(others=others)
        base = corpora[tasks[0].meta["sample_id"]]
        trials = [Store(base) for _ in range(4)]
        for entry in list(trials[3].entries()):
            trials[3].delete(entry.id)
        return [await delta(Episode(tasks[0], i, answers=[""]), s) for i, s in enumerate(trials)]

    first, *_, last = asyncio.run(main())
    assert asked == [tasks[0].id]
    assert first.parts["panel"] == first.parts["panel/before"] == last.parts["panel/before"]
    assert last.parts["panel"] == 0


def test_a_trial_without_an_edit_is_not_searched_again(known):
    family, tasks, corpora = known
    sought: list[str] = []

    class Counting(Retrieval):
        async def find(self, store, question, *rest):
            sought.append(question)
            return await super().find(store, question, *rest)

    async def main() -> list[int]:
        delta = MemoryDelta(retrieval=Counting(), others=family.siblings)
        counts = []
        for trial in range(3):
            store = Store(corpora[tasks[0].meta["sample_id"]])
            score = await delta(Episode(tasks[0], trial, answers=[""]), store)
            assert score.reward == 0 and score.parts["panel"] == score.parts["panel/before"]
            counts.append(len(sought))
        return counts

    assert len(set(asyncio.run(main()))) == 1  # the base is searched once, its trials never


def test_made_up_families_know_who_shares_a_base():
    world = World()
    task = world.task(3, 1, "test")
    others = world.siblings(task)
    assert len(others) == 5 and task.id not in {other.id for other in others}
    assert {other.meta["sample_id"] for other in others} == {task.meta["sample_id"]}
    # Without anything to lose there is no panel: this world answers none of its questions at first.
    found = rewards((world, [task], world.corpora()), only_evidence)
    assert "panel" not in found[0].parts and found[0].reward <= 0


@pytest.mark.parametrize("setting", ["panel", "panel_weight"])
def test_what_makes_no_sense_is_refused(setting):
    with pytest.raises(UserError, match=f"reward.{setting} is -1"):
        MemoryDelta(**{setting: -1})

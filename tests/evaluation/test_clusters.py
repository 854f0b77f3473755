"""Tasks name what they share with others, and it reaches the intervals through stored episodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.evaluation import summary
from recollect.evaluation.records import _is_short
from recollect.evaluation.scoring import score_record
from recollect.tasks.base import TaskFamily
from recollect.tasks.conversations.locomo_files import load_tasks
from tests.support.every_family import open_all


@pytest.fixture(scope="module")
def families(data: Path) -> dict[str, TaskFamily]:
    specs = ("locomo:questions", "squad@20docs", "ruler:qa_1@4k", "babilong:qa1@2k", "recall@1k")
    found = dict(open_all(data, specs))
    rows = [t for part in ("train", "test") for t in load_tasks(data / f"locomo/{part}.parquet")]
    assert {task.cluster for task in rows} == {task.meta["sample_id"] for task in rows}
    assert len({task.cluster for task in rows}) < len(rows)
    return found


def stored(task, index: int) -> dict:
    """Return what an evaluation keeps of a task that was answered wrongly."""
    asked = [{"text": q.text, "answers": list(q.answers)} for q in task.questions]
    meta = {name: value for name, value in task.meta.items() if _is_short(value)}
    place = {"task": "t", "agent": "a", "seed": 0, "index": index, "task_id": task.id}
    said = {"questions": asked, "answers": ["?"] * len(asked), "failure": None}
    return {"id": f"{index}", **place, "meta": meta, "chunks": len(task.chunks), **said}


@pytest.mark.parametrize("spec", ["locomo:questions", "squad@20docs", "ruler:qa_1@4k"])
def test_questions_about_one_text_are_one_cluster(families: dict[str, TaskFamily], spec: str):
    family = families[spec]
    tasks = [family.task(i, 0, "test") for i in range(min(240, family.size("test") or 240))]
    names = {task.cluster for task in tasks}
    assert 1 < len(names) < len(tasks) / 2
    answers = [a for i, t in enumerate(tasks) for a in score_record(stored(t, i), ["exact_match"])]
    found = summary.score(answers, 0)
    assert (found.n, found.n_clusters, found.interval) == (len(tasks), len(names), "clusters")


def test_what_shares_nothing_is_its_own_cluster(families: dict[str, TaskFamily]):
    made = [families["recall@1k"].task(i, 0, "test") for i in range(10)]
    assert len({task.cluster for task in made}) == 10
    told = families["babilong:qa1@2k"]
    stories = [told.task(i, 0, "test") for i in range(told.size("test"))]
    assert len({task.cluster for task in stories}) < len({task.item for task in stories})

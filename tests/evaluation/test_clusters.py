"""Tasks name what they share with others, and it reaches the intervals through stored episodes."""

from __future__ import annotations

import gzip
import json
import re
from collections import UserList
from pathlib import Path

import pytest

from recollect.cli import main
from recollect.evaluation import summary
from recollect.evaluation.records import _is_short
from recollect.evaluation.results import load
from recollect.evaluation.scoring import score_record
from recollect.metrics import cluster_scores
from recollect.runs.episodes import read_episodes, write_episodes
from recollect.tasks.base import TaskFamily
from recollect.tasks.conversations.locomo_files import load_tasks
from recollect.types import Episode, Question, Task
from recollect.view.rows import rows_of_run, run_heads
from tests.support.chat_server import chat_server
from tests.support.every_family import open_all
from tests.support.own import own_folder


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


def test_tasks_about_one_text_are_one_cluster_whatever_their_ids():
    def cluster(id: str, chunks, **meta) -> str:
        return Task(id, chunks, (Question(f"Who is {id}?", ("Ada",)),), meta=meta).cluster

    assert cluster("a", ["Ada is here."]) == cluster("b", ("Ada is here.",))
    assert cluster("a", ["Ada is", "here."]) != cluster("a", ["Ada ", "is here."])
    assert cluster("a", ["Ada is here."], item="x") == "x"
    assert cluster("a", ["Ada is here."], item="x", cluster="y") == "y"
    # What reads nothing shares nothing, and a lazy text may be longer than memory.
    assert [cluster(id, text) for id, text in (("a", []), ("b", [" "]))] == ["a", "b"]
    assert cluster("a", Lazy(["Ada is here."])) == "a"


class Lazy(UserList):
    """A text that is not held as a list."""


def test_clusters_that_share_a_unit_are_one():
    """The same question among other distractors for every seed is no second draw."""
    rows = [("x", "a", 1.0), ("y", "a", 0.0), ("y", "b", 1.0), ("z", "c", 0.5)]
    assert cluster_scores(rows) == [[[1.0, 0.0], [1.0]], [[0.5]]]
    assert cluster_scores(reversed(rows)) == [[[0.0, 1.0], [1.0]], [[0.5]]]
    chain = [(f"{i + j}", f"{i}", 1.0) for i in range(2000) for j in (1, 0)]
    assert len(cluster_scores(chain)) == 1


def test_what_a_run_stored_has_the_cluster_of_its_text(tmp_path: Path):
    tasks = [Task(id, ["Ada is here."], (Question(f"Who is {id}?", ("Ada",)),)) for id in "ab"]
    told = [Task("c", ["Ada"], tasks[0].questions, meta={"cluster": "article"})]
    path = tmp_path / "val-000000.jsonl.gz"
    write_episodes(path, [Episode(task, 0, answers=["Ada"]) for task in (*tasks, *told)])
    read = [episode.task for episode in read_episodes(path)]
    assert [task.cluster for task in read] == [tasks[0].cluster] * 2 + ["article"]
    rows = [row for n, head in run_heads(path) for row in rows_of_run(n, path, head)]
    assert [row["cluster"] for row in rows] == [task.cluster for task in read]
    assert read[2].meta == told[0].meta
    # An older file kept no cluster.
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    for line in lines:
        del line["task"]["cluster"]
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    assert [episode.task.cluster for episode in read_episodes(path)] == ["a", "b", "article"]
    rows = [row for n, head in run_heads(path) for row in rows_of_run(n, path, head)]
    assert [row["cluster"] for row in rows] == ["a", "b", "article"]


COPIES = """
from dataclasses import dataclass
from recollect import Question, Task


def one(split, i, text):
    return Task(f"{split}-{i}", [f"{split} {text}"], (Question("What does Ann like?", ("e1",)),))


def copied(split):
    return [one(split, i, f"Ann likes e1, said {i % 3}.") for i in range(24)]


def single(split):
    return [one(split, i, f"Ann likes e1, said {i}.") for i in range(3)]


@dataclass(frozen=True)
class Family:
    name, metric = "family", "answer_match"

    def size(self, split):
        return 24

    def longer(self, times):
        return self

    def task(self, index, seed=0, split="train"):
        return copied(split)[index]
"""


def test_copies_of_tasks_are_said_and_add_no_evidence(tmp_path: Path, monkeypatch, capsys):
    lines = [
        {"text": f"Ann likes e1, said {i % 3}.", "question": "What does Ann like?", "answer": "e1"}
        for i in range(24)
    ]
    (tmp_path / "rep.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with own_folder(tmp_path, monkeypatch, copied=COPIES), chat_server(lambda _: "e1") as server:
        sets = ["rep.jsonl", "copied:copied", "copied:Family", "copied:single"]
        words = ["--agents", "rag", "--model", server.url, "--n", "24", "--seeds", "2"]
        assert main(["eval", "--tasks", *sets, *words, "--out", "out"]) == 0
        said = capsys.readouterr().out
        found = {cell.task: cell for cell in load(Path("out")).cells if cell.agent == "rag"}
    assert said.count("21 of 24 held-out tasks are copies of others") == 2
    assert "13 of 16 first tasks are copies of others" in said
    *again, once = found.values()
    for cell in (*again, once):
        score = cell.scores["answer_match"]
        assert (score.mean, score.n_clusters, score.n_tasks) == (1.0, 3, 3)
        assert score.low == pytest.approx(once.scores["answer_match"].low)


def test_validate_calls_copies_wrong(tmp_path: Path, monkeypatch, capsys):
    with own_folder(tmp_path, monkeypatch, copied=COPIES):
        assert main(["data", "validate", "copied:copied"]) == 1
        said = capsys.readouterr().out
        assert re.search(r"copies +21 of 24 tasks are copies of others, 3 clusters.* WRONG", said)
        assert main(["data", "validate", "copied:single"]) == 0

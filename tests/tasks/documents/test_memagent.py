"""MemAgent's rows: written, read back, and read as they were released."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recollect.errors import UserError
from recollect.tasks.documents.hotpotqa import HotpotQA
from recollect.tasks.documents.memagent import (
    MemAgentRows,
    build_memagent,
    split_documents,
    write_eval,
    write_rows,
)
from recollect.tasks.files.lazy import Lazy
from recollect.types import Question, Task
from tests.support.made_up_hotpot import build, write_source


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> list[Task]:
    root = tmp_path_factory.mktemp("rows")
    build(write_source(root, test=12, train=2, others=300), root / "hotpotqa")
    return [HotpotQA(root / "hotpotqa", 50).task(i, 0, "test") for i in range(12)]


def by_question(family: MemAgentRows, n: int) -> dict[str, Task]:
    found = [family.task(i, 0, "test") for i in range(n)]
    return {task.questions[0].text: task for task in found}


@pytest.mark.parametrize(
    ("name", "write"), [("dev.parquet", write_rows), ("eval_50.json", write_eval)]
)
def test_what_is_written_is_read_back(tasks, tmp_path, name, write):
    assert write(tmp_path / name, tasks) == 12
    manifest = build_memagent({"test": [tmp_path / name]}, tmp_path / "out")
    assert manifest.counts["test"] == 12
    assert manifest.counts["passages"] < 12 * 50  # a document that two rows show is stored once
    read = by_question(MemAgentRows(tmp_path / "out"), 12)
    for task in tasks:
        question = task.questions[0]
        other = read[question.text]
        assert other.chunks == task.chunks
        assert other.questions[0].answers == question.answers
        assert other.questions[0].evidence == question.evidence


def test_the_columns_are_the_published_ones(tasks, tmp_path):
    write_rows(tmp_path / "train.parquet", tasks)
    table = pq.read_table(tmp_path / "train.parquet")
    names = ["data_source", "prompt", "context", "ability", "reward_model", "extra_info"]
    assert table.column_names == names
    row = table.to_pylist()[0]
    question = tasks[0].questions[0]
    assert row["prompt"] == [{"role": "user", "content": question.text}]
    assert row["reward_model"] == {"style": "rule", "ground_truth": list(question.answers)}
    assert row["extra_info"]["num_docs"] == 50 and row["data_source"] == "hotpotqa"
    assert row["context"].startswith("Document 1:\n") and "\n\nDocument 50:\n" in row["context"]


def test_released_rows_have_no_evidence_and_load(tmp_path):
    row = {
        "data_source": "hotpotqa",
        "prompt": [{"role": "user", "content": "Who?"}],
        "context": "Document 1:\nA title\nSome text.  \n\nDocument 2:\nB\nSee\n\nDocument 9:\nx",
        "ability": "memory",
        "reward_model": {"style": "rule", "ground_truth": ["Ada"]},
        "extra_info": {"index": 0, "question": "Who?", "num_docs": 2},
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "hotpotqa_train_32k.parquet")
    build_memagent({"train": [tmp_path / "hotpotqa_train_32k.parquet"]}, tmp_path / "out")
    family = MemAgentRows(tmp_path / "out")
    task = family.task(0)
    assert (family.size("train"), family.size("test")) == (1, 0)
    assert "\n\n".join(task.chunks) == row["context"] and len(task.chunks) == 2
    assert task.questions[0].answers == ("Ada",) and task.questions[0].evidence == ()


def test_a_text_without_documents_is_one_chunk(tmp_path):
    row = {"context": "A long text.\n\nMore.", "input": "Who?", "answers": ["Ada"], "index": 0}
    (tmp_path / "eval_vt.json").write_text(json.dumps([row]))
    build_memagent({"test": [tmp_path / "eval_vt.json"]}, tmp_path / "out")
    assert MemAgentRows(tmp_path / "out").task(0, 0, "test").chunks[:] == [row["context"]]


@pytest.mark.parametrize("context", [[7, 66_001, 3], ["7", "8"], "[7, 66001, 3]", "7 66001 3"])
@pytest.mark.parametrize("name", ["eval_12800.json", "dev.parquet"])
def test_rows_of_numbers_are_refused_for_what_they_are(tmp_path, name, context):
    row = {"context": context, "input": "Who?", "answers": ["Ada"], "num_docs": 3, "index": 0}
    if name.endswith(".json"):
        (tmp_path / name).write_text(json.dumps([row]))
    else:
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / name)
    with pytest.raises(UserError, match="numbers of its documents and not their text") as refused:
        build_memagent({"test": [tmp_path / name]}, tmp_path / "out")
    assert "recollect data hotpotqa" in refused.value.fix


@pytest.mark.parametrize(
    "row", [{"question": "Who?"}, {"context": {"a": 1}, "input": "Who?", "answers": ["Ada"]}]
)
def test_other_rows_are_named(tmp_path, row):
    (tmp_path / "eval.json").write_text(json.dumps([row]))
    with pytest.raises(UserError, match=r"eval\.json item 1 is not a row"):
        build_memagent({"test": [tmp_path / "eval.json"]}, tmp_path / "out")


@dataclass(frozen=True, eq=False)
class Long(Lazy[str]):
    """A text of documents that are made when they are asked for."""

    number: int

    def __len__(self) -> int:
        return 2_000

    def item(self, place: int) -> str:
        return f"Document {place + 1}:\nTitle {place}\n{self.number} " + "word " * 200


def test_many_long_rows_take_no_more_memory_than_a_few(tmp_path):
    def peak(rows: int) -> int:
        path, asked = tmp_path / f"{rows}_dev.parquet", (Question("Who?", ("Ada",)),)
        tracemalloc.start()
        write_rows(path, (Task(str(n), Long(n), asked, "x") for n in range(rows)))
        _, top = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return top

    few, many = peak(14), peak(28)  # of 2 MB each, row groups of 8 MB
    assert many < 1.2 * few
    assert pq.ParquetFile(tmp_path / "28_dev.parquet").num_row_groups >= 5


def test_numbers_out_of_turn_stay_in_their_document():
    text = "Document 1:\na\n\nDocument 3:\nb\n\nDocument 2:\nc"
    assert split_documents(text) == ["a\n\nDocument 3:\nb", "c"]


def test_longer_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="one length"):
        MemAgentRows(tmp_path).longer(2)

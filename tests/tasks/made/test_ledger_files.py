"""Ledgers as files: the published forms, read back as they were; the same bytes every time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from recollect.cli import main
from recollect.config.presets import PRESETS
from recollect.errors import UserError
from recollect.tasks.made.ledger import Ledger
from recollect.tasks.made.ledger_files import (
    SESSIONS,
    LedgerOptions,
    build_ledger,
    read_eval,
    read_rows,
    write_eval,
    write_rows,
)
from recollect.tasks.made.ledger_folder import LedgerFiles
from recollect.tasks.named import open_family, parse_specs
from recollect.types import Task


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Return a folder with two small sets, asked at any position."""
    folder = tmp_path_factory.mktemp("ledger")
    build_ledger(LedgerOptions(folder, (2, 5), 50, 20, batch_size=8, positions="any"))
    return folder


def without_evidence(task: Task) -> Task:
    return replace(task, questions=tuple(replace(q, evidence=()) for q in task.questions))


def test_the_published_sets_are_the_default(tmp_path):
    assert LedgerOptions(tmp_path).sessions == SESSIONS == (2, 5, 10, 20, 30, 40, 50)


def test_evaluation_files_have_the_published_form_and_read_back(folder):
    records = json.loads((folder / "ss5_test.json").read_text())
    assert sum(len(record["questions"]) for record in records) == 50
    family = Ledger(5, 20, "any", fewer=True)
    for i, record in enumerate(records):
        task = family.task(i, 0, "test")
        assert record["chunks"] == list(task.chunks) and len(record["chunks"]) == 5
        for question in record["questions"]:
            assert {"qid", "query", "answer", "position", "category"} <= set(question)
            assert 0 <= question["position"] < 5
        back = read_eval(folder / "ss5_test.json")[i]
        asked = task.questions[: len(back.questions)]
        assert back == Task(task.id, task.chunks, asked, "ledger")
    qids = [q["qid"] for record in records for q in record["questions"]]
    assert len(set(qids)) == len(qids) == 50


def test_training_files_have_the_published_form_and_read_back(folder):
    rows = pq.read_table(folder / "ss2_test.parquet").to_pylist()
    tasks = read_eval(folder / "ss2_test.json")
    batches = [
        replace(
            task,
            id=f"{task.id}-batch-{at // 8}" if at else task.id,
            questions=task.questions[at : at + 8],
        )
        for task in tasks
        for at in range(0, len(task.questions), 8)
    ]
    back = read_rows(folder / "ss2_test.parquet")
    assert back == [without_evidence(task) for task in batches] and len(rows) == len(back)
    row = rows[0]
    assert (row["data_source"], row["agent_name"]) == ("synth", "tool_mem_agent")
    assert len(row["prompt"]) == 1 and row["prompt"][0]["role"] == "user"
    assert len(row["prompt"][0]["content"]) == len(row["reward_model"]["ground_truth"]) <= 8
    info = row["extra_info"]
    assert info["num_chunks"] == 2 and row["context"] == "\n\n".join(tasks[0].chunks)
    assert set(info["tools_kwargs"]) == {
        *("memory_add", "memory_update", "memory_delete", "memory_key_retrieve", "memory_list"),
        *("memory_bm25_retrieve", "memory_embedding_retrieve"),
    }


def test_the_same_options_give_the_same_bytes(folder, tmp_path):
    build_ledger(LedgerOptions(tmp_path, (2, 5), 50, 20, batch_size=8, positions="any"))
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["ss2_test.json", "ss2_test.parquet", "ss5_test.json", "ss5_test.parquet"]
    for name in names:
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes()


def test_rows_of_others_are_read(tmp_path):
    """A row without chunks or positions, with several accepted answers."""
    import pyarrow as pa

    row = {
        "data_source": "memalpha_squad",
        "prompt": [{"role": "user", "content": ["Who?", "Where?"]}],
        "context": "Ada in Rome.",
        "reward_model": {"ground_truth": [["Ada", "Ada L."], ["Rome"]]},
        "extra_info": {"index": 7},
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "rows.parquet")
    (task,) = read_rows(tmp_path / "rows.parquet")
    assert (task.id, task.source, task.chunks) == (
        *("memalpha_squad-7", "memalpha_squad", ("Ada in Rome.",)),
    )
    assert [q.answers for q in task.questions] == [("Ada", "Ada L."), ("Rome",)]


def test_as_a_command(tmp_path, capsys):
    arguments = ["data", "ledger", "--output", str(tmp_path / "out"), "--sessions", "2", "5"]
    assert main([*arguments, "--questions", "10"]) == 0
    said = capsys.readouterr().out
    assert "ss2_test" in said and "ss5_test" in said and "10 questions" in said
    assert main([*arguments, "--questions", "0"]) == 2
    assert "set --questions to 1 or more" in capsys.readouterr().err


def test_what_is_no_such_file_names_the_fix(tmp_path):
    wrong = tmp_path / "wrong"
    for text in ("", "[1]", '{"a": 1}', '[{"task_id": "x"}]'):
        wrong.write_text(text)
        with pytest.raises(UserError, match="recollect data ledger"):
            read_eval(wrong)
        with pytest.raises(UserError, match="recollect data ledger"):
            read_rows(wrong)
    with pytest.raises(UserError, match="holds no tasks"):
        read_eval(tmp_path / "nowhere.json")


def test_lists_survive_a_round_trip_of_one_task(tmp_path):
    task = Ledger(sessions=3, questions=4).task(0)
    write_eval(tmp_path / "a.json", [task])
    write_rows(tmp_path / "a.parquet", [task])
    assert read_eval(tmp_path / "a.json") == [task]
    assert read_rows(tmp_path / "a.parquet") == [without_evidence(task)]


def test_files_are_families_by_name(folder, tmp_path):
    data = tmp_path / "ledger_file"
    data.mkdir()
    for name in ("ss5_test.json", "ss2_test.parquet"):
        (data / name).write_bytes((folder / name).read_bytes())
    tasks = read_eval(folder / "ss5_test.json")
    write_rows(data / "ss5_train.parquet", tasks)
    family = open_family(parse_specs("ledger_file:ss5")[0], tmp_path)
    assert family.size("test") == family.size("train") == len(tasks)
    assert [family.task(i, 0, "test") for i in range(len(tasks))] == tasks
    assert family.task(len(tasks) + 1) == without_evidence(tasks[1])  # round and round
    assert family.longer(1) is family and family == LedgerFiles(data, "ss5")
    rows = open_family(parse_specs("ledger_file:ss2")[0], tmp_path)
    assert rows.task(0, 0, "test") == read_rows(folder / "ss2_test.parquet")[0]
    for use, message in (
        (lambda: family.task(len(tasks), 0, "test"), f"ask for at most {len(tasks)}: --val.tasks"),
        (lambda: rows.task(0), "recollect data ledger --output .* --split train"),
        (lambda: family.longer(2), "has one length"),
    ):
        with pytest.raises(UserError, match=message):
            use()


def test_a_preset_trains_on_files():
    config = PRESETS["ledger_qa"]
    assert config.tasks == LedgerFiles() and config.agent == PRESETS["bank"].agent
    with pytest.raises(UserError, match="recollect data ledger"):
        config.tasks.task(0)

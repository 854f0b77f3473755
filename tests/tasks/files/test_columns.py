"""Tables of one's own become tasks by the names of their columns, and say what was dropped."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recollect.errors import UserError
from recollect.packaging import install
from recollect.tasks.files.columns import Rows
from recollect.tasks.named import open_family, parse_specs

ROWS = [
    {"q": f"Who owns house {i}?", "doc": f"House {i} is Ann{i}'s.", "a": f"Ann{i}"}
    for i in range(60)
]
MAP = "question=q,context=doc,answers=a"


def written(path: Path, rows: list[dict], **more) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=7, **more)
    return path


def every(family: Rows, split: str) -> list:
    return [family.task(i, 0, split) for i in range(family.size(split))]


def test_columns_become_tasks_and_a_part_is_held_out(tmp_path):
    family = Rows(str(written(tmp_path / "mine.parquet", ROWS)), MAP)
    train, test = every(family, "train"), every(family, "test")
    assert len(train) + len(test) == 60 and 0 < len(test) < 20
    asked = {task.questions[0].text: task for task in [*train, *test]}
    assert len(asked) == 60
    task = asked["Who owns house 17?"]
    assert task.chunks == ("House 17 is Ann17's.",) and task.questions[0].answers == ("Ann17",)
    assert family.task(0, 1, "test") == family.task(0, 2, "test")
    assert "60 rows read" in family.notes[0] and "question from q" in family.notes[0]


def test_files_and_columns_that_name_a_split_decide(tmp_path):
    written(tmp_path / "data" / "train-00000.parquet", ROWS[:40])
    written(tmp_path / "data" / "validation-00000.parquet", ROWS[40:])
    family = Rows(str(tmp_path / "data"), MAP)
    assert (family.size("train"), family.size("test")) == (40, 20)
    told = [row | {"split": "test" if i % 3 else "train"} for i, row in enumerate(ROWS)]
    family = Rows(str(written(tmp_path / "told.parquet", told)), MAP)
    assert (family.size("train"), family.size("test")) == (20, 40)


def test_what_is_dropped_is_said(tmp_path):
    rows = [*ROWS[:5], {"q": "", "doc": "x", "a": "y"}, {"q": "Who?", "doc": "x", "a": None}]
    family = Rows(str(written(tmp_path / "x.parquet", [row | {"extra": 1} for row in rows])), MAP)
    assert family.size("train") + family.size("test") == 5
    said = "\n".join(family.notes)
    assert "columns not used: extra" in said
    assert "1 rows dropped, without a question that is a text (first: row 5)" in said
    assert "1 rows dropped, without an answer that is a text (first: row 6)" in said


def test_nested_and_listed_cells(tmp_path):
    row = {"question": "When?", "context": ["a", "b"], "answers": {"text": ["1999"], "start": [3]}}
    family = Rows(str(written(tmp_path / "x.parquet", [row] * 30)))
    task = family.task(0)
    assert task.chunks == ("a", "b") and task.questions[0].answers == ("1999",)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("question=q,context=doc,answers=none", "has no column 'none' for answers"),
        ("question=q", "has no column for context, answers; it has q, doc, a"),
        ("questions=q", "'questions=q' does not map a column"),
        ("question=q,context=doc,answers=doc,", ""),
    ],
)
def test_wrong_columns_are_one_line(tmp_path, columns, said):
    family = Rows(str(written(tmp_path / "x.parquet", ROWS)), columns)
    if not said:
        assert family.size("train")
        return
    with pytest.raises(UserError, match=said):
        family.size("train")


def test_bad_sources_are_one_line(tmp_path, monkeypatch):
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    (tmp_path / "empty").mkdir()
    written(tmp_path / "mixed" / "a.parquet", ROWS)
    written(tmp_path / "mixed" / "b.parquet", [{"other": 1}])
    for source, said in {
        str(tmp_path / "bad.parquet"): "is not a Parquet file",
        str(tmp_path / "empty"): "holds neither Parquet files",
        str(tmp_path / "gone.parquet"): "there is no file",
        str(tmp_path / "gone"): "there is no file or folder",
        str(tmp_path / "mixed"): "has other columns than a.parquet",
        "": "the rows have no source",
    }.items():
        with pytest.raises(UserError, match=said):
            Rows(source, MAP).size("test")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"needs `datasets`") as found:
        Rows("squad").size("test")
    assert install("datasets") in str(found.value)
    blank = written(tmp_path / "blank.parquet", [{"q": "", "doc": "", "a": ""}])
    with pytest.raises(UserError, match="none of the 1 rows"):
        Rows(str(blank), MAP).size("test")


def saved(folder: Path, rows: list[dict]) -> None:
    """Write what `Dataset.save_to_disk` writes."""
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(rows)
    path = str(folder / "data-00000-of-00001.arrow")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=8)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))


def test_a_data_set_saved_on_disk_needs_no_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    saved(tmp_path / "d" / "train", ROWS[:40])
    saved(tmp_path / "d" / "test", ROWS[40:])
    (tmp_path / "d" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    family = Rows(str(tmp_path / "d"), MAP)
    assert (family.size("train"), family.size("test")) == (40, 20)
    assert {task.questions[0].text for task in every(family, "test")} == {r["q"] for r in ROWS[40:]}
    (tmp_path / "d" / "test" / "state.json").write_text("{")
    with pytest.raises(UserError, match="is not a readable data set"):
        Rows(str(tmp_path / "d"), MAP).size("test")


def test_they_are_named_on_the_command_line(tmp_path):
    path = written(tmp_path / "mine.parquet", ROWS)
    family = open_family(parse_specs(f"parquet:{path}")[0])
    assert family == Rows(str(path))

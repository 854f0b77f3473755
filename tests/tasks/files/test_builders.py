"""Folders with manifests: checksums, several variants in one, the same bytes every time."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from recollect.errors import UserError
from recollect.tasks.conversations.longmemeval import LongMemEval, read_longmemeval
from recollect.tasks.files.builders import build_babilong, build_ruler, build_tasks
from recollect.tasks.files.findings import Findings
from recollect.tasks.files.manifest import Manifest, read_manifest, sha256
from recollect.tasks.files.table import TaskTable, write_tasks
from recollect.tasks.haystacks.babilong import BabiLong
from recollect.tasks.haystacks.ruler import Ruler
from recollect.types import Question, Task
from tests.support.made_up_tasks import write_babi, write_books
from tests.tasks.conversations.test_longmemeval import item


def build(path: Path, variant: str, output: Path) -> Manifest:
    findings = Findings()
    tasks = read_longmemeval(path, findings)
    return build_tasks("longmemeval", variant, [path], tasks, findings, output)


def test_variants_share_a_folder(tmp_path):
    for name, items in (
        ("s", [item("a"), item("b", question_date=None)]),
        ("oracle", [item("c_abs")]),
        ("again", [item("d")]),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(items))
    output = tmp_path / "out"
    build(tmp_path / "s.json", "s", output)
    build(tmp_path / "oracle.json", "oracle", output)
    manifest = read_manifest(output, "longmemeval")
    assert manifest.counts == {
        "oracle abstention": 1,
        "oracle tasks": 1,
        "s multi-session": 2,
        "s tasks": 2,
    }
    assert manifest.problems == ("s b: has no date of the question",)
    assert [file.name for file in manifest.inputs] == ["oracle.json", "s.json"]
    assert [(f.name, f.sha256) for f in manifest.outputs] == [
        (name, sha256(output / name)) for name in ("oracle.parquet", "s.parquet")
    ]
    build(tmp_path / "again.json", "s", output)
    manifest = read_manifest(output)
    assert manifest.counts["s tasks"] == 1 and not manifest.problems
    assert LongMemEval("s", output).task(0, 0, "test").id == "d"
    assert LongMemEval("oracle", output).size("test") == 1
    assert str(tmp_path) not in (output / "manifest.json").read_text()


def test_the_same_input_gives_the_same_bytes(tmp_path):
    (tmp_path / "s.json").write_text(json.dumps([item("a")]))
    for name in ("one", "two"):
        build(tmp_path / "s.json", "s", tmp_path / name)
    for file in ("s.parquet", "manifest.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_ruler_takes_books(tmp_path):
    write_books(tmp_path / "books")
    manifest = build_ruler(tmp_path / "books", tmp_path / "ruler")
    assert read_manifest(tmp_path / "ruler", "ruler") == manifest
    assert [file.name for file in manifest.outputs] == ["books/book.txt"]
    assert manifest.counts["sentences"] == 400
    task = Ruler("niah_single_2", 2048, folder=tmp_path / "ruler").task(0, 0, "test")
    assert task.questions[0].answers[0] in task.chunks[task.questions[0].evidence[0]]
    build_ruler(tmp_path / "ruler" / "books", tmp_path / "ruler")  # its own books are no trouble
    with pytest.raises(UserError, match="public-domain"):
        build_ruler(tmp_path / "nowhere", tmp_path / "ruler")


@pytest.mark.parametrize("packed", [True, False])
def test_babilong_takes_stories_and_books(packed, tmp_path):
    write_books(tmp_path / "books")
    write_babi(tmp_path / "en")
    source = tmp_path / "en"
    if packed:
        source = tmp_path / "babi.tar.gz"
        with tarfile.open(source, "w:gz") as archive:
            archive.add(tmp_path / "en", "tasks_1-20_v1-2/en")
    manifest = build_babilong(source, tmp_path / "books", tmp_path / "babilong")
    assert manifest.counts["qa1 train"] == 80 and manifest.counts["qa8 train"] == 4
    assert read_manifest(tmp_path / "babilong", "babilong") == manifest
    family = BabiLong("qa1", 1024, 128, folder=tmp_path / "babilong")
    assert family.size("train") + family.size("test") == 80
    with pytest.raises(UserError, match="holds no files of bAbI"):
        build_babilong(tmp_path / "books", tmp_path / "books", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_table_of_tasks(tmp_path):
    asked = (Question("Who?", ("Ann", "A."), "one", (1,), 0), Question("When?", ("now",)))
    tasks = [
        Task(
            f"t{i}", ("first", "zweiter ü", f"{i}"), asked, "made up", {"n": i, "deep": {"a": [1]}}
        )
        for i in range(3)
    ]
    path = tmp_path / "tasks.parquet"
    assert write_tasks(path, iter(tasks)) == 3
    table = TaskTable(path, "make it")
    assert table.ids == ["t0", "t1", "t2"] and [table.task(i) for i in range(3)] == tasks
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(UserError, match="make it"):
        table.task(0)
    with pytest.raises(UserError, match="make it"):
        _ = TaskTable(tmp_path / "none.parquet", "make it").ids

"""Data are known by what their files hold: in caches, in run folders and in evaluations."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from recollect.config.presets import preset
from recollect.engines.verl.run.folder import prepare
from recollect.errors import UserError
from recollect.evaluation.entry import enter
from recollect.evaluation.models import Opened
from recollect.evaluation.options import EvalOptions
from recollect.evaluation.setup import Setup, default_folder, known_agents, set_up
from recollect.tasks.documents.known import read_closed_book
from recollect.tasks.documents.paragraphs import Item, Paragraph
from recollect.tasks.files.fingerprint import fingerprint
from recollect.tasks.files.jsonl import Jsonl
from recollect.tasks.haystacks.babilong import BabiLong
from recollect.tasks.haystacks.ruler import Ruler
from recollect.tasks.made.recall import Recall
from tests.support.made_up_tasks import write_babi, write_books


def write(path: Path, word: str) -> Path:
    """Write four tasks, all about one word, always as old as before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    splits = ("train", "train", "test", "test")
    lines = [
        {"text": f"It is {word}.", "question": f"What is {i}?", "answer": word, "split": split}
        for i, split in enumerate(splits)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    os.utime(path, ns=(0, 0))
    return path


def evaluated(data: Path, word: str) -> tuple[EvalOptions, Setup]:
    write(data / "jsonl" / "tasks.jsonl", word)
    options = EvalOptions(("jsonl",), "http://localhost:1/v1", ("rag",), data=data)
    return options, set_up(options, known_agents(options))


def test_an_evaluation_is_of_the_data_and_not_of_their_name(tmp_path):
    options, setup = evaluated(tmp_path / "one", "amber")
    folder = default_folder(options, setup)
    assert default_folder(*evaluated(tmp_path / "one", "amber")) == folder
    assert default_folder(*evaluated(tmp_path / "two", "ivory")) != folder  # another --data
    opened = Opened({}, {})
    (tmp_path / "out").mkdir()
    enter(tmp_path / "out", setup, options, opened, "first")
    enter(tmp_path / "out", *reversed(evaluated(tmp_path / "one", "amber")), opened, "again")
    options, setup = evaluated(tmp_path / "one", "coral")  # as long, and as old
    with pytest.raises(UserError, match="the data of jsonl have changed"):
        enter(tmp_path / "out", setup, options, opened, "changed")


def test_a_cluster_run_does_not_keep_the_tasks_of_other_data(tmp_path):
    file = write(tmp_path / "mine.jsonl", "amber")
    base = preset("demo")
    config = replace(base, tasks=Jsonl(file), steps=1, val=replace(base.val, tasks=2))
    for word in ("amber", "ivory"):
        write(file, word)
        tasks = prepare(replace(config, tasks=Jsonl(file)), tmp_path / "run").tasks("test")
        assert tasks[0].questions[0].answers == (word,)


def test_books_and_stories_are_read_as_they_are_now(tmp_path):
    for word in ("amber", "ivory"):
        for name in ("books", "babi"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        write_books(tmp_path / "books")
        write_babi(tmp_path / "babi")
        for path in tmp_path.rglob("*.txt"):
            path.write_text(path.read_text().replace("Mary", word).replace(" water", f" {word}"))
        ruler = Ruler("niah_single_2", 1024, folder=tmp_path)
        assert word in "".join(ruler.task(0).chunks)
        assert word in "".join(BabiLong("qa1", 1024, 128, folder=tmp_path).task(0).chunks)
        assert fingerprint(ruler) != fingerprint(replace(ruler, variant="niah_single_1")) == ""


def test_an_own_family_is_known_by_the_files_that_its_settings_name(tmp_path):
    @dataclass(frozen=True)
    class Mine(Recall):
        folder: Path = tmp_path / "mine"

    write(tmp_path / "mine" / "a.txt", "amber")
    before = fingerprint(Mine())
    assert before and fingerprint(Recall()) == ""
    write(tmp_path / "mine" / "a.txt", "ivory")
    assert fingerprint(Mine()) != before


def test_what_a_model_knows_is_kept_by_question(tmp_path):
    record = {"id": "dev.json item 1", "question": "Who sat?", "answers": ["Ann"]}
    (tmp_path / "known.jsonl").write_text(json.dumps(record))
    known = read_closed_book(tmp_path / "known.jsonl")
    item = Item("dev.json item 1", "Who sat?", ("Ann",), (Paragraph("A", "Ann sat."),), (0,))
    assert known(item)
    with pytest.raises(UserError, match="another question"):
        known(replace(item, question="Who stood?"))

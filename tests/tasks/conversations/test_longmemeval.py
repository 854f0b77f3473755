"""LongMemEval: sessions by date, types and abstention, evidence, flaws that are reported."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recollect.errors import UserError
from recollect.tasks.conversations.longmemeval import (
    ABSTENTION,
    TYPES,
    LongMemEval,
    parse_item,
    read_longmemeval,
)
from recollect.tasks.files.findings import Findings
from recollect.tasks.files.table import write_tasks
from recollect.tasks.named import open_family, parse_specs
from tests.support.places import SHARED

REAL = SHARED / "longmemeval"
needs_real = pytest.mark.skipif(not REAL.exists(), reason="needs the LongMemEval files")


def item(id: str = "q1", kind: str = "multi-session", **more: Any) -> dict[str, Any]:
    """Three sessions, not in the order of their dates."""

    def turns(text: str, marked: bool = False) -> list[dict[str, Any]]:
        said = {"role": "user", "content": text}
        return [
            {**said, "has_answer": True} if marked else said,
            {"role": "assistant", "content": " I see. "},
        ]

    return {
        "question_id": id,
        "question_type": kind,
        "question": "How many cats do I have?",
        "answer": 2,
        "question_date": "2023/05/30 (Tue) 23:40",
        "haystack_dates": [
            "2023/05/21 (Sun) 09:00",
            "2023/05/20 (Sat) 10:00",
            "2023/05/20 (Sat) 09:59",
        ],
        "haystack_session_ids": ["late", "early", "first"],
        "haystack_sessions": [turns("A second cat!", True), turns("Rain."), turns("A cat!", True)],
        "answer_session_ids": ["first", "late"],
        **more,
    }


def test_sessions_come_by_date():
    findings = Findings()
    task = parse_item(item(), findings)
    assert [chunk.splitlines()[0] for chunk in task.chunks] == [
        "[2023/05/20 (Sat) 09:59]",
        "[2023/05/20 (Sat) 10:00]",
        "[2023/05/21 (Sun) 09:00]",
    ]
    assert task.chunks[0].endswith("user: A cat!\n\nassistant: I see.")
    (question,) = task.questions
    assert question.answers == ("2",) and question.evidence == (0, 2)
    assert question.text == "It is 2023/05/30 (Tue) 23:40 now. How many cats do I have?"
    assert question.category == "multi-session"
    assert task.meta["questions"] == [
        {
            "id": "q1",
            "type": "multi-session",
            "abstention": False,
            "date": "2023/05/30 (Tue) 23:40",
            "evidence_turns": [[0, 0], [2, 0]],
        }
    ]
    assert task.meta["sessions"] == ["first", "early", "late"]
    assert not findings.problems and findings.categories == {"multi-session": 1}


def test_abstention_is_a_category_of_its_own():
    task = parse_item(item("q1_abs"), Findings())
    assert task.id.endswith("_abs") and task.questions[0].category == ABSTENTION
    assert task.meta["questions"][0]["type"] == "multi-session"
    assert task.meta["questions"][0]["abstention"] is True


def test_flaws_are_reported():
    findings = Findings()
    parse_item(item(kind="new"), findings)
    parse_item(item(question_date=None), findings)
    parse_item(item(question_date="2023/05/20 (Sat) 12:00"), findings)
    parse_item(item(answer_session_ids=["first", "lost"]), findings)
    parse_item(item(haystack_session_ids=["late", "first", "first"]), findings)
    assert findings.problems == [
        "q1: the type 'new' is unknown",
        "q1: has no date of the question",
        "q1: late holds evidence from after the question",
        "q1: there is no session lost that its evidence names",
        "q1: holds the session first 2 times",
    ]
    lost = Findings()
    parse_item(item(answer_session_ids=["lost", 2]), lost)
    assert len(lost.problems) == 2  # names of two kinds, too
    undated = parse_item(item(question_date=None), Findings())
    assert undated.questions[0].text == "How many cats do I have?"


def test_what_is_missing_is_not_read_as_none():
    findings = Findings()
    sessions = [[{"role": "user", "content": None}], [], []]
    dates = ["2023/05/21", "2023/05/20 (Sat)", "2023/05/20"]
    odd = item(answer=None, haystack_sessions=sessions, haystack_dates=dates)
    task = parse_item(odd, findings)
    assert "None" not in " ".join((*task.chunks, *task.questions[0].answers))
    assert task.meta["sessions"] == ["early", "first", "late"]
    assert any("has no answer" in problem for problem in findings.problems)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    items = [item(f"q{i}", TYPES[i % 6]) for i in range(12)]
    (tmp_path / "file.json").write_text(json.dumps(items))
    folder = tmp_path / "longmemeval"
    folder.mkdir()
    tasks = read_longmemeval(tmp_path / "file.json", Findings())
    assert write_tasks(folder / "s.parquet", tasks) == 12
    return folder


def test_the_family(folder):
    family = LongMemEval(folder=folder)
    assert (family.size("train"), family.size("test"), family.metric) == (0, 12, "judge")
    tasks = [family.task(i, 7, "test") for i in range(12)]
    assert sorted(task.id for task in tasks) == sorted(f"q{i}" for i in range(12))
    assert [family.task(i, 8, "test") for i in range(12)] == tasks  # seeds pair the questions
    (again,) = [task for task in tasks if task.id == "q3"]
    assert again == parse_item(item("q3", TYPES[3]), Findings())
    assert Counter(task.questions[0].category for task in tasks) == dict.fromkeys(TYPES, 2)
    with pytest.raises(UserError, match="there are 12 test tasks"):
        family.task(12, 0, "test")
    with pytest.raises(UserError, match="train_fraction"):
        family.task(0, 0, "train")
    dealt = LongMemEval(folder=folder, train_fraction=0.5)
    trained = {dealt.task(i, 0, "train").id for i in range(30)}
    held_out = {dealt.task(i, 0, "test").id for i in range(dealt.size("test"))}
    assert trained and held_out and not trained & held_out and len(trained | held_out) == 12


def test_mistakes(folder, tmp_path):
    with pytest.raises(UserError, match="oracle, s, m"):
        LongMemEval("xl")
    with pytest.raises(UserError, match="recollect data longmemeval"):
        LongMemEval("m", folder).size("test")
    with pytest.raises(UserError, match="fixed lengths"):
        LongMemEval(folder=folder).longer(2)
    for name, content, match in (
        ("twice", [item(), item()], "more than once"),
        ("shape", [{"question_id": "q"}], "item 1 .* shape of LongMemEval: 'question_type' is mis"),
        (
            "field",
            [item(), {k: v for k, v in item("b").items() if k != "answer"}],
            "item 2 .*: 'answer' is missing",
        ),
        ("list", [item(haystack_sessions={})], "'haystack_sessions' is not a list"),
        ("dates", [item(haystack_dates=["May", "June", "July"])], "'haystack_dates': 'May' is no"),
        ("asked", [item(question_date="now")], "'question_date': 'now' is no date"),
        (
            "counts",
            [item(haystack_dates=[])],
            r"'haystack_dates' \(0\), 'haystack_session_ids' \(3\)",
        ),
        (
            "turns",
            [item(haystack_sessions=[[], [{"role": "user"}], []])],
            "'haystack_sessions' 1 is",
        ),
        ("turn", [item(haystack_sessions=[[], "hello", []])], "'haystack_sessions' 1 is"),
        ("names", [item(answer_session_ids=[["first"]])], "'answer_session_ids' is not a list of"),
        ("empty", [], "no question of LongMemEval in empty.json"),
    ):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(content))
        with pytest.raises(UserError, match=match):
            list(read_longmemeval(path, Findings()))
    (tmp_path / "cut.json").write_text(json.dumps([item()])[:-50])
    with pytest.raises(UserError, match="cut"):
        list(read_longmemeval(tmp_path / "cut.json", Findings()))


def test_names(folder):
    (spec,) = parse_specs("longmemeval:s")
    assert open_family(spec, folder.parent) == LongMemEval("s", folder)
    (spec,) = parse_specs("longmemeval@8k")
    with pytest.raises(UserError, match="no length"):
        open_family(spec)


@needs_real
@pytest.mark.parametrize("name", ["longmemeval_s_dev", "longmemeval_s_evidence_only_dev"])
def test_real_files(name):
    findings = Findings()
    path = REAL / f"{name}.json.gz"
    tasks = list(read_longmemeval(path, findings))
    assert findings.categories == {
        "multi-session": 9,
        "single-session-preference": 6,
        "temporal-reasoning": 6,
        "knowledge-update": 4,
        ABSTENTION: 3,
        "single-session-user": 1,
    }
    late = [problem.split(":")[0] for problem in findings.problems if "from after" in problem]
    assert set(late) == {"gpt4_c27434e8_abs", "gpt4_0b2f1d21", "gpt4_2655b836", "0bb5a684"}
    raw = {row["question_id"]: row for row in json.loads(gzip.decompress(path.read_bytes()))}
    for task in tasks:
        (question,) = task.questions
        row = raw[task.id]
        assert len(task.chunks) == len(row["haystack_sessions"])
        wanted = set(row["answer_session_ids"])
        assert {task.meta["sessions"][i] for i in question.evidence} == wanted
        # The marked turns really stand in the chunks that the evidence names.
        by_id = dict(zip(row["haystack_session_ids"], row["haystack_sessions"], strict=True))
        for chunk, turn in task.meta["questions"][0]["evidence_turns"]:
            said = by_id[task.meta["sessions"][chunk]][turn]
            assert said["has_answer"] and said["content"].strip() in task.chunks[chunk]
        dates = task.meta["dates"]
        assert dates == sorted(dates)  # written with the year first

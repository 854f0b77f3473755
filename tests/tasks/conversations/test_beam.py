"""BEAM: exchanges as chunks, ten abilities, rubrics, evidence by message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recollect.errors import UserError
from recollect.tasks.conversations.beam import ABILITIES, Beam, parse_item, read_beam
from recollect.tasks.files.findings import Findings
from recollect.tasks.files.table import write_tasks
from recollect.tasks.named import open_family, parse_specs
from tests.support.places import SHARED

REAL = SHARED / "beam_100k/beam_100k_dev10.jsonl.gz"


def chat() -> list[dict[str, Any]]:
    def said(id: int, role: str, text: str, **more: Any) -> dict[str, Any]:
        return {"id": id, "role": role, "content": text, **more}

    return [
        {
            "batch_number": 1,
            "time_anchor": None,
            "turns": [
                [
                    said(0, "user", "I run 5 km. ->-> 1,1", time_anchor="March-15-2024"),
                    said(1, "assistant", "Well done."),
                ],
                [said(2, "user", "And now? ->-> 1,N/A)"), said(3, "assistant", "Rest.")],
            ],
        },
        {
            "batch_number": 2,
            "turns": [
                [said(4, "user", "7 km today.", time_anchor="May-01-2024")],
            ],
        },
    ]


QUESTIONS = {
    "knowledge_update": [
        {
            "question": "How far do I run?",
            "answer": "7 km",
            "rubric": ["should state: 7 km"],
            "source_chat_ids": {"original_info": [0], "updated_info": [4]},
        }
    ],
    "abstention": [
        {"question": "Where?", "ideal_response": "Not told.", "rubric": ["not told"]},
        {"question": "Who?", "rubric": ["not told", "no name"], "source_chat_ids": [9]},
    ],
}


def item(id: int = 1) -> dict[str, Any]:
    return {"conversation_id": id, "chat": chat(), "probing_questions": QUESTIONS}


def test_a_conversation():
    findings = Findings()
    task = parse_item(item(), findings)
    assert task.chunks == (
        "[March-15-2024]\n\nuser: I run 5 km.\n\nassistant: Well done.",
        "[March-15-2024]\n\nuser: And now?\n\nassistant: Rest.",
        "[May-01-2024]\n\nuser: 7 km today.",
    )
    first, second, third = task.questions
    assert (first.answers, first.evidence) == (("7 km",), (0, 2))
    assert first.category == "knowledge_update"
    assert (second.answers, second.evidence) == (("Not told.",), ())
    assert third.answers == ("not told; no name",)
    assert [about["id"] for about in task.meta["questions"]] == [
        "beam-1-knowledge_update-1",
        "beam-1-abstention-1",
        "beam-1-abstention-2",
    ]
    assert task.meta["questions"][2]["rubric"] == ["not told", "no name"]
    assert findings.problems == [
        "beam-1-abstention-2: has no answer, only a rubric",
        "beam-1-abstention-2: there are no messages [9] that its evidence names",
    ]
    assert findings.categories == {"knowledge_update": 1, "abstention": 2}


def test_a_message_without_a_number_is_read():
    chats = chat()
    del chats[0]["turns"][0][1]["id"]
    chats[0]["turns"][1][1]["id"] = None
    task = parse_item(item() | {"chat": chats}, Findings())
    assert "Well done." in task.chunks[0] and task.questions[0].evidence == (0, 2)


def test_a_folder_as_published(tmp_path):
    for n in (10, 2):
        (tmp_path / str(n) / "probing_questions").mkdir(parents=True)
        (tmp_path / str(n) / "chat.json").write_text(json.dumps(chat()))
        questions = tmp_path / str(n) / "probing_questions/probing_questions.json"
        questions.write_text(json.dumps(QUESTIONS))
    (tmp_path / "10/chat_trunecated.json").write_text(json.dumps(chat()[:1]))
    tasks = list(read_beam(tmp_path, Findings()))
    assert [task.id for task in tasks] == ["beam-2", "beam-10"]
    assert [len(task.chunks) for task in tasks] == [3, 2]
    (tmp_path / "2/chat.json").unlink()
    with pytest.raises(UserError, match="cannot be read"):
        list(read_beam(tmp_path, Findings()))


def test_the_family(tmp_path):
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(item(n)) + "\n" for n in range(6)))
    folder = tmp_path / "beam"
    folder.mkdir()
    write_tasks(folder / "100k.parquet", read_beam(path, Findings()))
    (spec,) = parse_specs("beam")
    family = open_family(spec, tmp_path)
    assert isinstance(family, Beam) and family.metric == "judge"
    assert family.size("test") == 6 and family.size("train") == 0
    tasks = [family.task(i, 0, "test") for i in range(6)]
    assert sorted(task.id for task in tasks) == [f"beam-{n}" for n in range(6)]
    assert parse_item(item(4), Findings()) in tasks
    with pytest.raises(UserError, match="100k, 500k"):
        Beam("2m")
    with pytest.raises(UserError, match="recollect data beam"):
        Beam("10m", folder).size("test")
    with pytest.raises(UserError, match="fixed lengths"):
        family.longer(2)


def test_mistakes(tmp_path):
    for name, rows, match in (
        ("twice", [item(), item()], "more than once"),
        ("shape", [{"conversation_id": 1, "chat": [{}]}], "shape of BEAM"),
        ("none", [], "no conversation"),
    ):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        with pytest.raises(UserError, match=match):
            list(read_beam(path, Findings()))
    with pytest.raises(UserError, match=r"is a folder(.|\n)*none\.jsonl"):
        list(read_beam(tmp_path, Findings()))
    (tmp_path / "bare").mkdir()
    with pytest.raises(UserError, match="no conversation"):
        list(read_beam(tmp_path / "bare", Findings()))


@pytest.mark.skipif(not REAL.exists(), reason="needs BEAM's conversations")
def test_the_real_file():
    findings = Findings()
    tasks = list(read_beam(REAL, findings))
    assert len(tasks) == 10 and findings.categories == dict.fromkeys(ABILITIES, 20)
    nameless = [problem for problem in findings.problems if "names no evidence" in problem]
    assert findings.problems == nameless and len(nameless) < 10
    for task in tasks:
        assert not any("->->" in chunk for chunk in task.chunks)
        for question, about in zip(task.questions, task.meta["questions"], strict=True):
            assert question.answers[0] and about["rubric"]
            flawed = any(problem.startswith(f"{about['id']}:") for problem in nameless)
            assert bool(question.evidence) == (question.category != "abstention" and not flawed)
    dates = {chunk.splitlines()[0] for task in tasks for chunk in task.chunks}
    assert "[no date]" not in dates

"""A user's own data: what is read, and mistakes with their lines."""

from __future__ import annotations

import json

import pytest

from recollect.errors import UserError
from recollect.tasks.files.jsonl import Jsonl
from recollect.tasks.named import open_family, parse_specs
from recollect.types import Question
from tests.support.places import ROOT

GOOD = {
    "id": "a",
    "chunks": ["Ada has a dog.", "Ben has a cat."],
    "questions": [
        {"question": "Who has a cat?", "answers": ["Ben", "Benjamin"], "evidence": [1]},
        {"question": "What has Ada?", "answer": "a dog", "category": "pets", "position": 0},
    ],
}
SHORT = {"text": "It rains.", "question": "What is the weather?", "answer": "rain"}


def write(path, *lines):
    path.write_text("".join(x if isinstance(x, str) else json.dumps(x) + "\n" for x in lines))
    return Jsonl(path)


def test_both_ways_of_writing_a_line(tmp_path):
    family = write(tmp_path / "t.jsonl", GOOD, "\n", SHORT, GOOD | {"id": "b", "split": "train"})
    assert (family.size("test"), family.size("train")) == (2, 1)
    first, second = (family.task(i, 0, "test") for i in range(2))
    assert first.chunks == tuple(GOOD["chunks"]) and first.id == "a"
    assert first.questions == (
        Question("Who has a cat?", ("Ben", "Benjamin"), "", (1,)),
        Question("What has Ada?", ("a dog",), "pets", (), 0),
    )
    assert second.chunks == ("It rains.",) and second.id == "t.jsonl line 3"
    assert family.task(5).id == "b"  # training goes round
    with pytest.raises(UserError, match="2 test tasks"):
        family.task(2, 0, "test")


def test_a_file_is_named_on_the_command_line(tmp_path):
    write(tmp_path / "t.jsonl", SHORT)
    (spec,) = parse_specs(f"jsonl:{tmp_path / 't.jsonl'}")
    assert open_family(spec).size("test") == 1


def test_an_empty_file_is_said_to_be_empty(tmp_path):
    (tmp_path / "t.jsonl").write_text("\n\n")
    with pytest.raises(UserError, match=r"t\.jsonl holds no tasks"):
        Jsonl(tmp_path / "t.jsonl").size("test")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{]\n", "not JSON"),
        ("[1]\n", "not an object"),
        ({"question": "?", "answer": "x"}, "needs chunks"),
        ({"text": "x", "chunks": ["y"], "question": "?", "answer": "x"}, "needs chunks"),
        ({"text": "x", "questions": []}, "not a list"),
        (SHORT | {"questions": [{"question": "?", "answer": "x"}]}, "both question and questions"),
        ({"text": "x", "answer": "x"}, "without a text"),
        ({"text": "x", "question": " ", "answer": "x"}, "without a text"),
        ({"text": "x", "question": "?"}, "no answers"),
        ({"text": "x", "question": "?", "answer": " "}, "no answers"),
        ({"text": "x", "question": "?", "answer": "x", "answers": ["y"]}, "both answer and"),
        ({"text": "x", "question": "?", "answer": 5}, "the answer 5 is not a text"),
        ({"text": "x", "question": "?", "answer": True}, "the answer true is not a text"),
        ({"text": "x", "question": "?", "answer": "x", "evidence": [1]}, "no chunk 1"),
        ({"text": "x", "question": "?", "answer": "x", "evidence": 1}, "evidence"),
        ({"text": "x", "question": "?", "answer": "x", "position": "end"}, "no chunk 'end'"),
        (SHORT | {"split": "dev"}, "split is 'dev'"),
        (SHORT | {"meta": 1}, "meta"),
        *((SHORT | {"meta": {"bytes_per_token": n}}, "bytes_per_token") for n in (0, -1, "4", [])),
        (GOOD, "is also in line 1"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path, line, said):
    family = write(tmp_path / "t.jsonl", GOOD, line)
    with pytest.raises(UserError, match=said) as error:
        family.size("test")
    assert "t.jsonl line 2" in error.value.what


def test_the_example_is_read():
    family = Jsonl(ROOT / "examples" / "own_data.jsonl")
    tasks = [family.task(i, 0, "test") for i in range(family.size("test"))]
    assert [len(task.questions) for task in tasks] == [2, 2, 1]
    for task in tasks:
        for question in task.questions:
            held = " ".join(task.chunks[i] for i in question.evidence or (0,))
            assert any(answer in held for answer in question.answers)


def test_a_mark_before_the_first_character_is_no_text(tmp_path):
    line = json.dumps({"text": "Ann sat.", "question": "Who?", "answer": "Ann"})
    (tmp_path / "own.jsonl").write_text(line, encoding="utf-8-sig")
    assert Jsonl(tmp_path / "own.jsonl").task(0, 0, "test").questions[0].answers == ("Ann",)


def test_what_is_null_is_not_there(tmp_path):
    """A table's rows have every column."""
    empty = dict.fromkeys(("id", "chunks", "split", "source", "meta", "category", "evidence"))
    one = SHORT | empty | {"answers": None, "questions": None, "more": None}
    many = {
        "text": "Ben sat.",
        "question": None,
        "questions": [{"question": "Who?", "answer": "Ben", "category": None}],
    }
    family = write(tmp_path / "t.jsonl", one, one | {"text": "Again."}, many)
    assert len(family.notes) == 1
    for task in (family.task(i, 0, "test") for i in range(3)):
        assert task.questions[0].category == "" and task.source == "jsonl"


def test_what_is_not_used_is_said(tmp_path):
    misspelt = {"question": "Who?", "answer": "Ben", "evidense": [0]}
    odd = {"chunks": ["Ben sat."], "questions": [misspelt], "answer": "Ben", "topic": "pets"}
    family = write(tmp_path / "t.jsonl", GOOD, SHORT, odd, odd | {"id": "b"})
    counted, said, again = family.notes
    assert again.endswith(
        "t.jsonl: 1 of 4 held-out tasks are copies of others, which add no evidence"
    )
    assert "4 tasks read" in counted and "t.jsonl: keys not used: evidense (line 3)" in said
    assert "answer (line 3), topic (line 3)" in said
    assert len(write(tmp_path / "sound.jsonl", GOOD, SHORT).notes) == 1
    many = SHORT | {f"more {i}": i for i in range(20)}
    assert write(tmp_path / "t.jsonl", many).notes[1].endswith("more 7 (line 1), 12 more")


def test_a_text_that_is_not_in_utf_8_is_said_to_be(tmp_path):
    lines = [json.dumps(SHORT | {"text": f"Café {i}"}, ensure_ascii=False) for i in range(3)]
    (tmp_path / "t.jsonl").write_bytes(
        b"\n".join(line.encode("latin-1" if i else "utf-8") for i, line in enumerate(lines))
    )
    family = Jsonl(tmp_path / "t.jsonl")
    assert "2 lines not in UTF-8 and read with gaps (first: line 2)" in family.notes[1]
    assert family.task(0, 0, "test").chunks == ("Café 0",)
    assert family.task(1, 0, "test").chunks == ("Caf\ufffd 1",)


def test_a_file_in_another_encoding_is_named_as_such(tmp_path):
    """As some editors write it."""
    (tmp_path / "t.jsonl").write_text(json.dumps(SHORT), "utf-16")
    with pytest.raises(UserError, match=r"t.jsonl line 1 is not in UTF-8\n  fix: save the file"):
        Jsonl(tmp_path / "t.jsonl").size("test")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"there is no file .*no.jsonl"):
        Jsonl(tmp_path / "no.jsonl").size("test")


def test_held_out_lines_that_are_training_lines_are_said(tmp_path):
    line = {"text": "It rains.", "question": "What is the weather?", "answer": "rain"}
    other = line | {"question": "Does it rain?", "answer": "it does"}
    family = write(tmp_path / "t.jsonl", line | {"split": "train"}, other, line, line)
    said = "2 of 3 held-out tasks are training tasks, too (first: line 3)"
    assert [note for note in family.notes if note.endswith(said)]
    family = write(tmp_path / "u.jsonl", line | {"split": "train"}, other)
    assert len(family.notes) == 1

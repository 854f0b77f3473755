"""LoCoMo for question answering: official categories, two choices, evidence, both shapes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from recollect.errors import UserError
from recollect.metrics.table import SCORES
from recollect.tasks.conversations.locomo import CATEGORIES, read_locomo
from recollect.tasks.conversations.locomo_files import LocomoOptions, build_locomo
from recollect.tasks.conversations.locomo_qa import LocomoQA
from recollect.tasks.named import open_family, parse_specs
from tests.tasks.conversations.test_locomo import QA, REAL, conversation, needs_real

OFFICIAL = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("locomo")
    (path / "file.json").write_text(
        json.dumps([conversation(f"conv-{n}", QA) for n in range(1, 9)])
    )
    build_locomo(LocomoOptions(path / "file.json", path / "locomo"))
    return path / "locomo"


def test_whole_conversations(folder):
    family = LocomoQA(folder=folder)
    assert CATEGORIES == OFFICIAL
    assert (family.size("test"), family.size("train"), family.metric) == (8, 0, "answer_overlap")
    tasks = [family.task(i, 0, "test") for i in range(8)]
    assert sorted(task.id for task in tasks) == [f"conv-{n}" for n in range(1, 9)]
    task = tasks[0]
    assert task.chunks[0].splitlines()[0] == "[session_1, 1 pm on 8 May, 2023]"
    assert [question.category for question in task.questions] == [
        "single-hop",
        "temporal",
        "open-domain",
        "adversarial",
        "adversarial",
    ]
    assert [question.evidence for question in task.questions] == [(0,), (0, 1), (1,), (), ()]
    assert task.questions[1].text == "When? Use the dates of the conversation to answer."
    assert task.questions[1].answers == ("2022",)
    assert task.meta["questions"][1]["evidence_turns"] == ["D1:1", "D2:1"]


def test_category_5_is_a_choice_of_two(folder):
    task = LocomoQA(folder=folder).task(0, 0, "test")
    question, about = task.questions[3], task.meta["questions"][3]
    options = about["options"]
    assert sorted(options) == ["Not mentioned in the conversation", "Rex"]
    assert question.text == f"A dog? Choose the right answer: (a) {options[0]} (b) {options[1]}"
    right, wrong = ("a", "b") if options[0] != "Rex" else ("b", "a")
    assert about["right"] == right
    score = SCORES["locomo_f1"]
    good = ("Not mentioned in the conversation", "no information available", f"({right})", right)
    assert [score(text, question) for text in good] == [1] * 4
    bad = ("Rex", f"({wrong})", wrong, "yes", "", "the")
    assert [score(text, question) for text in bad] == [0] * 6
    # One that lacks the wrong answer is asked as it is.
    assert task.questions[4].text == "Is it Ann's?" and task.questions[4].answers[0] == "No"


def test_the_order_of_the_choices_is_drawn_by_the_seed(folder):
    family = LocomoQA("questions", (5,), folder)
    places = Counter(
        task.meta["questions"][0].get("right")
        for seed in range(20)
        for task in (family.task(i, seed, "test") for i in range(16))
    )
    assert places[None] == 160  # the question without a wrong answer
    assert 50 <= places["a"] <= 110 and places["a"] + places["b"] == 160
    assert family.task(3, 4, "test") == family.task(3, 4, "test")


def test_one_question_at_a_time(folder):
    family = LocomoQA("questions", folder=folder)
    assert family.size("test") == 40
    tasks = [family.task(i, 0, "test") for i in range(40)]
    assert len({task.id for task in tasks}) == 40
    assert all(len(task.questions) == len(task.meta["questions"]) == 1 for task in tasks)
    assert all(task.id == task.meta["questions"][0]["id"] for task in tasks)
    hops = LocomoQA("questions", (4,), folder)
    assert hops.size("test") == 8
    dealt = LocomoQA("questions", folder=folder, train_fraction=0.5)
    trained = {dealt.task(i, 0, "train").id.split("-qa")[0] for i in range(dealt.size("train"))}
    held_out = {dealt.task(i, 0, "test").id.split("-qa")[0] for i in range(dealt.size("test"))}
    assert trained and held_out and not trained & held_out


def test_mistakes(folder, tmp_path):
    with pytest.raises(UserError, match="conversations, questions"):
        LocomoQA("sessions")
    with pytest.raises(UserError, match="5 \\(adversarial\\)"):
        LocomoQA(categories=(6,))
    with pytest.raises(UserError, match="recollect data locomo"):
        LocomoQA(folder=tmp_path).size("test")
    with pytest.raises(UserError, match="one length"):
        LocomoQA(folder=folder).longer(2)


def test_names(folder):
    one, two = (open_family(spec, folder.parent) for spec in parse_specs("locomo locomo:questions"))
    assert one == LocomoQA(folder=folder) and two == LocomoQA("questions", folder=folder)


@needs_real
def test_the_real_file(tmp_path):
    build_locomo(LocomoOptions(REAL, tmp_path / "locomo"))
    family = LocomoQA(folder=tmp_path / "locomo")
    tasks = [family.task(i, 0, "test") for i in range(family.size("test"))]
    counts = Counter(question.category for task in tasks for question in task.questions)
    assert [counts[CATEGORIES[id]] for id in CATEGORIES] == [142, 156, 46, 418, 237]
    assert sum(len(task.chunks) for task in tasks) == 128
    read = {conversation.id: conversation for conversation in read_locomo(REAL)}
    score = SCORES[family.metric]
    unsupported = 0
    for task in tasks:
        for question, about in zip(task.questions, task.meta["questions"], strict=True):
            if question.category == "adversarial":
                assert about["options"] and score(f"({about['right']})", question) == 1
            # The official scorer looks at open-domain answers up to the semicolon.
            gold = question.answers[0].partition(";" if about["category_id"] == 3 else "\0")[0]
            if question.category != "adversarial":
                assert score(gold, question) == pytest.approx(1)
            assert [score(text, question) for text in ("", "the")] == [0, 0]
            unsupported += not question.evidence
            for dia in about["evidence_turns"]:
                (at,) = [i for i, s in enumerate(read[task.id].sessions) if dia in s.dia_ids]
                assert at in question.evidence
    assert unsupported < 10

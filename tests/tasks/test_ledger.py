"""Ledger tasks against a second bookkeeper, who reads nothing but the dialogue."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.errors import UserError
from recollect.metrics import boxed_exact_match, value_match
from recollect.seeds import derive
from recollect.tasks.base import TaskFamily
from recollect.tasks.ledger import CATEGORIES, KINDS, Ledger, top
from recollect.types import Question, Task

CATEGORY = re.compile(rf"\b({'|'.join(CATEGORIES)})\b")
LINE = re.compile(r'\[(\d{4}-\d\d-\d\d)\] (User|Assistant) said, "([^"]+)"')


@dataclass(frozen=True)
class Entry:
    """What the second bookkeeper wrote down."""

    chunk: int
    day: str
    category: str
    cents: int


def read(task: Task) -> list[Entry]:
    """Read every amount, with its category from the line, the filing after it, or before it."""
    entries = []
    for chunk, text in enumerate(task.chunks):
        parsed = [LINE.fullmatch(line) for line in text.split("\n")]
        assert all(parsed), text
        said = [match[3] for match in parsed]
        assert len({match[1] for match in parsed}) == 1
        for at, line in enumerate(said):
            amounts = re.findall(r"\$(\d+)\.(\d\d)(?!\d)", line)
            assert len(amounts) == line.count("$") <= 1
            if amounts:
                filed = at + 1 < len(said) and re.search(r"filed|putting it down", said[at + 1])
                places = [line, *([said[at + 1]] if filed else []), *said[at - 1 :: -1]]
                category = next(m[1] for m in map(CATEGORY.search, places) if m)
                euros, cents = amounts[0]
                entries.append(Entry(chunk, parsed[0][1], category, int(euros) * 100 + int(cents)))
    return entries


def solve(question: Question, entries: list[Entry]) -> str:
    """Answer a question from its words and the entries alone."""
    days = re.findall(r"\d{4}-\d\d-\d\d", question.text.partition("?")[0])
    if days:
        entries = [e for e in entries if days[0] <= e.day <= days[-1]]
    wanted = CATEGORY.findall(question.text.partition("?")[0])
    if wanted:
        entries = [e for e in entries if e.category in wanted]
    if "largest single" in question.text:
        return f"{max(e.cents for e in entries) / 100:.2f}"
    tally: Counter[str] = Counter()
    for entry in entries:
        if "which category" in question.text:
            tally[entry.category] += entry.cents
        elif "which date" in question.text:
            tally[entry.day] += 1
    if tally:
        return ", ".join(sorted(k for k in tally if tally[k] == max(tally.values())))
    return f"{sum(e.cents for e in entries) / 100:.2f}"


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 25), st.integers(0, 10**6), st.integers(0, 3))
def test_answers_follow_from_the_dialogue(sessions: int, index: int, seed: int) -> None:
    task = Ledger(sessions=sessions, questions=16).task(index, seed)
    entries = read(task)
    assert len(task.chunks) == sessions
    per_session = Counter(entry.chunk for entry in entries)
    assert set(per_session) == set(range(sessions)) and max(per_session.values()) <= 10
    days = [task.chunks[i][1:11] for i in range(sessions)]
    assert days == sorted(set(days)) and days[0] >= "2023-01-01" and days[-1] <= "2024-12-31"
    assert len({q.text for q in task.questions}) == len(task.questions) == 16
    for question in task.questions:
        assert question.answers == (solve(question, entries),)
        # The evidence suffices: nothing else in the text changes the answer.
        needed = [e for e in entries if e.chunk in question.evidence]
        assert solve(question, needed) == question.answers[0]
        assert question.evidence == tuple(sorted(set(question.evidence)))


def test_every_evidence_chunk_of_a_sum_is_needed() -> None:
    for index in range(40):
        task = Ledger().task(index)
        entries = read(task)
        for question in task.questions:
            if question.category.endswith(("scene_amount", "scenes_amount", "total_amount")):
                for left_out in question.evidence:
                    rest = [e for e in entries if e.chunk != left_out]
                    assert solve(question, rest) != question.answers[0]


def test_a_task_depends_on_index_seed_and_split_only() -> None:
    family = Ledger(sessions=4)
    assert family.task(3, 1) == Ledger(sessions=4).task(3, 1)
    others = [family.task(3, 1), family.task(4, 1), family.task(3, 2), family.task(3, 1, "test")]
    assert len({task.chunks for task in others}) == len({task.id for task in others}) == 4


def test_the_first_task_stays_what_it_is() -> None:
    # Published figures name a seed: whatever changes this number makes another data set.
    task = Ledger().task(0)
    assert (task.id, task.source) == ("ledger-train-0-0-of-10-sessions", "ledger")
    asked = [question.text + question.answers[0] for question in task.questions]
    assert derive(*task.chunks, *asked) == 8077038543306928773


def test_all_kinds_are_asked_in_turn() -> None:
    task = Ledger(questions=36).task(0)
    counts = Counter(question.category for question in task.questions)
    assert set(counts) == set(KINDS)
    assert counts.pop("total_amount") == 1
    assert set(counts.values()) == {5}
    first = {Ledger(questions=1).task(index).questions[0].category for index in range(100)}
    assert first == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_one_kind_alone(kind: str) -> None:
    task = Ledger(questions=1, kinds=(kind,)).task(0)
    assert task.questions[0].category == kind


def test_ties_name_all() -> None:
    assert top({"Shopping": 500, "Dining": 500, "Other": 499}) == "Dining, Shopping"
    assert top({"Other": 1}) == "Other"
    ties = [
        question.answers[0]
        for index in range(60)
        for question in Ledger(kinds=("max_frequency_date",), questions=1).task(index).questions
        if "," in question.answers[0]
    ]
    assert ties
    for answer in ties:
        assert answer.split(", ") == sorted(answer.split(", "))


def test_evidence_is_spread_over_the_sessions() -> None:
    kinds = ("single_date_scene_amount",)
    places = Counter(
        Ledger(questions=1, kinds=kinds).task(index).questions[0].evidence for index in range(1000)
    )
    assert set(places) == {(i,) for i in range(10)}
    # chi-square with 9 degrees of freedom stays below 27.9 in 999 of 1000 uniform draws
    assert sum((count - 100) ** 2 / 100 for count in places.values()) < 27.9
    spans = {q.evidence for index in range(20) for q in Ledger().task(index).questions}
    assert len(spans) > 40


def test_the_gold_answer_scores_and_a_part_of_it_does_not() -> None:
    for question in Ledger(questions=36).task(1).questions:
        gold = question.answers[0]
        assert boxed_exact_match(f"\\boxed{{{gold}}}", question.answers) == 1.0
        assert value_match(f"\\boxed{{{gold}}}", question.answers) == 1.0
        assert value_match(f"\\boxed{{4{gold}}}", question.answers) == 0.0
        assert value_match("yes", question.answers) == 0.0


def test_any_length() -> None:
    family: TaskFamily = Ledger(sessions=50, max_chatter=0)
    longer = family.longer(16)
    task = longer.task(0)
    assert len(task.chunks) == 800  # more than there are days in two years
    assert len({chunk[1:11] for chunk in task.chunks}) == 800
    assert all(question.answers == (solve(question, read(task)),) for question in task.questions)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sessions": 0}, "set sessions, questions and max_transactions to 1 or more"),
        ({"questions": 0}, "set sessions, questions and max_transactions to 1 or more"),
        ({"max_transactions": 0}, "set sessions, questions and max_transactions to 1 or more"),
        ({"sessions": 10**7}, "at most 1000000"),
        ({"max_chatter": -1}, "max_chatter to 0 or more"),
        ({"kinds": ()}, "choose from time_range_scene_amount"),
        ({"kinds": ("average",)}, "no kind of ledger question 'average'"),
    ],
)
def test_impossible_settings_name_the_fix(settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Ledger(**settings)


def test_too_many_questions_for_a_short_ledger_name_the_fix() -> None:
    with pytest.raises(UserError, match="has only 1 questions of these kinds, not 2"):
        Ledger(kinds=("total_amount",), questions=2).task(0)
    with pytest.raises(UserError, match="ask fewer questions"):
        Ledger(sessions=1, kinds=("single_date_scene_amount",), questions=9).task(0)

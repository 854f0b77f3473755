"""Ledger tasks against a second bookkeeper, who reads nothing but the dialogue."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.errors import UserError
from recollect.metrics import boxed_exact_match, value_match
from recollect.seeds import derive
from recollect.tasks.base import TaskFamily
from recollect.tasks.made.ledger import Ledger
from recollect.tasks.made.ledger_book import CATEGORIES
from recollect.tasks.made.ledger_questions import KINDS, largest
from recollect.tasks.made.ledger_talk import CHATTER, CLOSINGS, EXCHANGES, OPENINGS, say
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
    """Read the amounts and the categories of every session: the first belongs to the first."""
    entries = []
    for chunk, text in enumerate(task.chunks):
        parsed = [LINE.fullmatch(line) for line in text.split("\n")]
        assert all(parsed), text
        said = "\n".join(match[3] for match in parsed)
        assert len({match[1] for match in parsed}) == 1
        amounts = re.findall(r"\$(\d+)\.(\d\d)(?!\d)", said)
        categories = CATEGORY.findall(said)
        # No digit is said but in amounts, and no bracket of a frame was left.
        assert len(amounts) == len(categories) == said.count("$")
        assert not re.search(r"\d|[\[\]{}|]", re.sub(r"\$\d+\.\d\d", "", said)), said
        entries += [
            Entry(chunk, parsed[0][1], category, int(euros) * 100 + int(cents))
            for (euros, cents), category in zip(amounts, categories, strict=True)
        ]
    return entries


def solve(question: Question, entries: list[Entry]) -> str:
    """Answer a question from its words and the entries read before it was asked."""
    if question.position is not None:
        entries = [e for e in entries if e.chunk <= question.position]
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
@given(st.integers(1, 25), st.integers(0, 10**6), st.integers(0, 3), st.booleans())
def test_answers_follow_from_the_dialogue_and_from_the_books(
    sessions: int, index: int, seed: int, anywhere: bool
) -> None:
    family = Ledger(sessions, questions=16, positions="any" if anywhere else "end", fewer=True)
    task = family.task(index, seed)
    entries = read(task)
    kept = [
        Entry(t.session, t.day.isoformat(), t.category, t.cents)
        for session in family.book(index, seed)
        for t in session
    ]
    assert entries == kept  # the talk says what the books hold, and nothing else
    assert len(task.chunks) == sessions
    per_session = Counter(entry.chunk for entry in entries)
    assert set(per_session) == set(range(sessions)) and max(per_session.values()) <= 10
    days = [task.chunks[i][1:11] for i in range(sessions)]
    assert days == sorted(set(days)) and days[0] >= "2023-01-01" and days[-1] <= "2024-12-31"
    assert len({q.text for q in task.questions}) == len(task.questions) <= 16
    assert len(task.questions) == 16 or sessions < 3
    for question in task.questions:
        assert question.answers == (solve(question, entries),)
        # The evidence suffices: nothing else in the text changes the answer.
        needed = [e for e in entries if e.chunk in question.evidence]
        assert solve(question, needed) == question.answers[0]
        assert question.evidence == tuple(sorted(set(question.evidence)))
        assert question.position is None or (anywhere and 0 <= question.position < sessions - 1)


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
    assert derive(*task.chunks, *asked) == 7766011280631107806


def test_all_kinds_are_asked_in_turn() -> None:
    task = Ledger(questions=36).task(0)
    counts = Counter(question.category for question in task.questions)
    assert set(counts) == set(KINDS)
    assert counts.pop("total_amount") == 1
    assert set(counts.values()) == {5}
    first = {Ledger(questions=1).task(index).questions[0].category for index in range(100)}
    assert first == set(KINDS)


def test_questions_are_asked_anywhere_if_wanted() -> None:
    family = Ledger(questions=8, positions="any")
    places = Counter(q.position for index in range(60) for q in family.task(index).questions)
    assert set(places) == {None, *range(9)} and max(places.values()) < 3 * min(places.values())
    # What was asked for at the end is not changed by this setting.
    assert family.task(0).chunks == Ledger().task(0).chunks


def test_the_wording_varies() -> None:
    """Frames: sentences with their items, amounts and categories taken out."""
    names = {name: "CATEGORY" for name in CATEGORIES}
    names |= {item: "ITEM" for items in CATEGORIES.values() for item in items}
    longest = sorted(names, key=len, reverse=True)
    known = re.compile(rf"\b({'|'.join(map(re.escape, longest))})\b", re.IGNORECASE)
    frames: Counter[str] = Counter()
    for index in range(100):
        for chunk in Ledger(questions=1).task(index).chunks:
            said = "\n".join(match[3] for match in map(LINE.fullmatch, chunk.split("\n")))
            for line in re.sub(r"\$[\d.]+", "AMOUNT", said).split("\n"):
                if "AMOUNT" in line:
                    frames[known.sub("NAME", line)] += 1
    payments = sum(frames.values())
    assert payments > 5000
    # 20,000 sentences from a handful of frames would be learned as a handful of frames.
    assert len(frames) > 700 and frames.most_common(1)[0][1] < payments / 50


def test_every_line_of_every_frame_can_be_said() -> None:
    rng = Random(0)
    for lines in (*EXCHANGES, *CHATTER, OPENINGS, CLOSINGS):
        for _ in range(20):
            said = [line.partition(": ") for line in say(lines, rng)]
            assert all(role in ("User", "Assistant") and text for role, _, text in said)
            assert not re.search(r"[\[\]|]|  | [.,?]", "".join(text for _, _, text in said))
    for lines in EXCHANGES:
        text = "".join(say(lines, rng))
        assert [text.count(f"{{{name}}}") for name in ("item", "category")] == [1, 1]
        assert text.count("${amount}") == text.count("{amount}") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_one_kind_alone(kind: str) -> None:
    task = Ledger(questions=1, kinds=(kind,)).task(0)
    assert task.questions[0].category == kind


def test_ties_name_all() -> None:
    assert largest({"Shopping": 500, "Dining": 500, "Other": 499}) == ["Dining", "Shopping"]
    assert largest({"Other": 1}) == ["Other"]
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
    assert len(Ledger(kinds=("total_amount",), questions=2, fewer=True).task(0).questions) == 1
    with pytest.raises(UserError, match="ask fewer questions"):
        Ledger(sessions=1, kinds=("single_date_scene_amount",), questions=9).task(0)

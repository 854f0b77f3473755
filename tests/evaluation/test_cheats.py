"""No family can be won by naming everything, giving up, or repeating what was asked or read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from recollect.evaluation.scoring import cut, first_metric
from recollect.metrics import unanswerable
from recollect.tasks.base import TaskFamily
from recollect.tasks.documents.known import is_right
from recollect.tasks.made.recall import ENGLISH
from recollect.tasks.named import OPENERS, parse_specs
from recollect.types import Question
from tests.support.cheats import CHEATS, Asked, chance, mean_score
from tests.support.every_family import REAL_SPECS, SPECS, open_all
from tests.support.places import SHARED

TASKS, QUESTIONS, CANDIDATES = 40, 40, 20
OPENED = (*SPECS, *(REAL_SPECS if SHARED.exists() else ()))


@pytest.fixture(scope="module")
def families(data: Path) -> dict[str, TaskFamily]:
    return dict(open_all(data, OPENED))


def questions(family: TaskFamily) -> list[Asked]:
    """Return what the headline counts: the questions that the text answers."""
    size = family.size("test")
    tasks = [family.task(i, 0, "test") for i in range(min(TASKS, size or TASKS))]
    asked = [(t, q) for t in tasks for q in t.questions if not unanswerable(q)][:QUESTIONS]
    golds = Counter(a for _, q in asked for a in (q.answers if q.every else q.answers[:1]))
    pool = tuple(answer for answer, _ in golds.most_common(CANDIDATES))
    return [Asked(task, question, pool) for task, question in asked]


@pytest.fixture(scope="module")
def asked_of(families: dict[str, TaskFamily]) -> Callable[[str], list[Asked]]:
    return cache(lambda spec: questions(families[spec]))


@pytest.mark.parametrize("spec", OPENED)
def test_no_cheat_beats_chance(families: dict[str, TaskFamily], asked_of, spec: str) -> None:
    metric = first_metric(families[spec].metric, judged=False)
    asked = asked_of(spec)
    allowed = chance(metric, asked) + 0.02 + 1 / len(asked)
    earned = {name: mean_score(metric, asked, cheat) for name, cheat in CHEATS.items()}
    assert {name: score for name, score in earned.items() if score > allowed} == {}


def test_every_family_that_can_be_named_is_tried() -> None:
    assert {parse_specs(spec)[0].name for spec in SPECS} | {"dataset", "verifiers"} == set(OPENERS)


def test_the_closed_book_filter_believes_no_cheat(asked_of) -> None:
    """A question that a cheat "knows" would be taken out of the data."""
    for spec in ("hotpotqa@20docs", "2wikimultihopqa@20docs", "musique@20docs", "squad@20docs"):
        asked = asked_of(spec)
        most = max(
            sum(is_right(said, a.question.text, a.question.answers) for a in asked)
            for said in dict.fromkeys(asked[0].candidates)
        )
        for name, cheat in CHEATS.items():
            known = sum(is_right(cut(cheat(a)), a.question.text, a.question.answers) for a in asked)
            assert known <= most + 1, (spec, name)


def test_an_answer_while_thinking_or_taken_back_is_none(
    families: dict[str, TaskFamily], asked_of
) -> None:
    replies = (
        "<think>It is {}.</think>",
        "<think>\n{}",
        "<think>{}</think>I do not know.",
        "Well.\n</think>\n<think>\n{}",
        "It is not {}.",
        "{} is wrong",
        "Certainly not: {}",
        "{} or something else",
    )
    for spec, family in families.items():
        if family.metric != "answer_match":
            continue  # overlap is for free words: half of them may be right
        asked = [a for a in asked_of(spec) if a.question.answers[0].lower() not in ("no", "none")]
        for reply in replies:
            earned = mean_score(
                family.metric, asked, lambda a, r=reply: r.format(right(a.question))
            )
            assert earned == 0.0, (spec, reply)


@pytest.mark.parametrize("length", ["recall@1k", "recall@4k"])
def test_naming_all_values_of_the_kind_that_is_asked_for_earns_nothing(
    families: dict[str, TaskFamily], length: str
) -> None:
    """In closed book, with containment, this was right always."""
    family = families[length]
    asked = []
    for i in range(40):
        task = family.task(i, 0, "test")
        for question in task.questions:
            kind = next(kind for kind in ENGLISH.values if kind in question.text)
            asked.append(Asked(task, question, ENGLISH.values[kind]))
    for name in ("list all", "all joined by or", "all in a box", "all without commas"):
        assert mean_score(family.metric, asked, CHEATS[name]) == 0.0
    for name in ("two of them", "two without a word between", "none of them"):
        assert mean_score(family.metric, asked, CHEATS[name]) == 0.0
    assert mean_score(family.metric, asked, lambda a: a.question.answers[0]) == 1.0


def test_right_answers_are_right_in_every_family(families: dict[str, TaskFamily], asked_of) -> None:
    """A score that nobody can win would pass all of the above."""
    for spec, family in families.items():
        metric = first_metric(family.metric, judged=False)
        asked = asked_of(spec)
        said = {
            "alone": lambda a: right(a.question),
            "in a box": lambda a: f"After thinking\nabout it: \\boxed{{{right(a.question)}}}",
            "after a mark": lambda a: f"I read the text.\n**Answer:** {right(a.question)}",
        }
        for name, reply in said.items():
            assert mean_score(metric, asked, reply) == 1.0, (spec, name)


def right(question: Question) -> str:
    # LoCoMo's reasons follow a semicolon, and are no part of the answer.
    answers = [answer.partition(";")[0] for answer in question.answers]
    return ", ".join(answers) if question.every else answers[0]

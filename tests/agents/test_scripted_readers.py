"""What scripted readers score on every generated family: all, nothing, or what they deserve.

The oracle's reader answers right exactly when it is shown every chunk of the evidence: so it fails
if evidence is not where a task says, or if a family's own answer does not pass its own metric.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.agents.base import Agent
from recollect.agents.baselines import ClosedBookAgent, FullContextAgent, OracleAgent
from recollect.metrics import SCORES
from recollect.tasks.base import TaskFamily
from recollect.tasks.named import open_family, parse_specs
from recollect.types import Task
from tests.support.made_up_hotpot import build, write_source
from tests.support.made_up_tasks import write_babi, write_books
from tests.support.play import play

SPECS = (
    "recall@1k ledger@1k hotpotqa@20docs babilong:qa1,qa2,qa8,qa11@1k",
    "ruler:niah_single_1,niah_single_2,niah_single_3,niah_multivalue,niah_multiquery@1k",
    "ruler:niah_multikey_1,niah_multikey_2,niah_multikey_3,vt,fwe,qa_2@1k ruler:cwe@4k",
)
NAMES = tuple(str(spec) for text in SPECS for spec in parse_specs(text))
_PROMPT = re.compile(r"(?:<text>\n(.*)\n</text>.*)?<problem>\n(.*)\n</problem>", re.DOTALL)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("data")
    write_books(data / "ruler" / "books")
    write_books(data / "babilong" / "books")
    write_babi(data / "babilong" / "babi")
    build(write_source(data, 20, 10, 400), data / "hotpotqa")
    return data


@pytest.fixture(params=NAMES)
def family(request: pytest.FixtureRequest, data: Path) -> TaskFamily:
    (spec,) = parse_specs(request.param)
    return open_family(spec, data)


def tasks(family: TaskFamily) -> list[Task]:
    return [family.task(i, 0, "test") for i in range(2)]


def score(
    family: TaskFamily,
    agent: Agent,
    reader: Callable[[Task], Callable[[str], str]],
    metric: str = "",
) -> float:
    found = []
    for task in tasks(family):
        answers = play(agent, task, reader(task)).answers
        for answer, question in zip(answers, task.questions, strict=True):
            found.append(SCORES[metric or family.metric](answer, question))
    return sum(found) / len(found)


def knowing(task: Task) -> Callable[[str], str]:
    """Answer right if the prompt shows all that the answer needs."""
    questions = {question.text: question for question in task.questions}

    def answer(prompt: str) -> str:
        found = _PROMPT.search(prompt)
        assert found
        question = questions[found[2]]
        if not all(task.chunks[i] in (found[1] or "") for i in question.evidence):
            return "I do not know."
        all_of_them = task.source == "ruler" and not question.category.startswith("qa")
        gold = ", ".join(question.answers) if all_of_them else question.answers[0]
        return f"The answer is \\boxed{{{gold}}}."

    return answer


def always(text: str) -> Callable[[Task], Callable[[str], str]]:
    return lambda task: lambda prompt: text


def echo(task: Task) -> Callable[[str], str]:
    return lambda prompt: prompt


def test_the_oracle_is_always_right(family):
    assert score(family, OracleAgent(), knowing) == 1.0
    assert score(family, FullContextAgent(), knowing) == 1.0


def test_evidence_is_what_the_answer_needs(family):
    assert all(question.evidence for task in tasks(family) for question in task.questions)
    assert score(family, ClosedBookAgent(), knowing) == 0.0


def test_empty_phrases_are_no_answers(family):
    for text in ("yes", "", "the", "I do not know.", "\\boxed{}", "\\boxed{the}"):
        assert score(family, ClosedBookAgent(), always(text)) == 0.0


def test_strict_scores_refuse_an_echo(family):
    for metric in ("exact_match", "boxed_exact_match"):
        assert score(family, FullContextAgent(), echo, metric) == 0.0
    assert score(family, FullContextAgent(), echo, "token_f1") < 0.1
    assert score(family, ClosedBookAgent(), echo) < 0.1  # no question gives its answer away

"""A verifiers environment as a family of tasks, and a family as an environment."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from recollect.agents.resources import Resources
from recollect.errors import UserError
from recollect.memory.text import TextMemory
from recollect.rewards.verifiers import VerifiersReward
from recollect.tasks.base import TaskFamily
from recollect.tasks.named import open_family, parse_specs
from recollect.tasks.verifiers import VerifiersTasks, as_taskset, pieces
from recollect.types import Episode, Question, Task

HERE = importlib.util.find_spec("verifiers") is not None
installed = pytest.mark.skipif(not HERE, reason="the extra verifiers is not installed")
ENVIRONMENT = """
import verifiers.v1 as vf

class Data(vf.TaskData):
    answer: str = ""
    context: str = ""

class Sum(vf.Task[Data]):
    @vf.reward(weight=2.0)
    async def right(self, trace) -> float:
        return float(self.data.answer in trace.last_reply)

    @vf.metric
    async def words(self, trace) -> float:
        return float(len(trace.last_reply.split()))

class Sums(vf.Taskset[Sum]):
    def load(self):
        for i in range(30):
            text = f"First number: {i}.\\n\\nSecond number: {i + 1}."
            row = {"prompt": "What is the sum?", "answer": str(2 * i + 1), "context": text}
            yield Sum(Data(id=str(i), **row))

__all__ = ["Sums"]
"""


@dataclass(frozen=True)
class Chess:
    name = "chess"
    metric = "sub_exact_match"

    def size(self, split):
        return 5

    def longer(self, times):
        return self

    def task(self, index, seed=0, split="train"):
        question = Question("Which was the first move?", (f"e{index}",))
        return Task(f"chess-{index}", (f"Move 1: e{index}.", "Move 2: d4."), (question,), "chess")


@pytest.fixture
def environment(tmp_path, monkeypatch):
    (tmp_path / "sums_env.py").write_text(ENVIRONMENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "sums-env"
    sys.modules.pop("sums_env", None)


@installed
def test_an_environment_is_a_family_with_its_own_reward(environment):
    family = open_family(parse_specs(f"verifiers:{environment}")[0])
    assert isinstance(family, TaskFamily) and family.name == "verifiers:sums-env"
    assert family.size("train") + family.size("test") == 30 and family.size("test") >= 1
    read = VerifiersTasks(environment, context="context", chunk_size=20)
    task = read.task(0, 0, "test")
    place = task.meta["verifiers"]
    assert task.chunks == (f"First number: {place}.", f"Second number: {place + 1}.")
    assert task.questions[0].answers == (str(2 * place + 1),)
    assert task.questions[0].text == "What is the sum?"
    assert read.task(0, 0, "test") == task  # the same index, the same task
    reward = VerifiersReward().bind(Resources(tasks=read))
    for answer, worth in ((f"It is {2 * place + 1}", 2.0), ("I do not know", 0.0)):
        episode = Episode(task, 0, answers=[answer])
        score = asyncio.run(reward(episode, TextMemory()))
        assert score.reward == worth and score.parts["right"] == worth
        assert score.parts["words"] == len(answer.split())


@installed
def test_a_family_is_an_environment_that_verifiers_loads(tmp_path, monkeypatch):
    import verifiers.v1 as vf

    (tmp_path / "chess_env.py").write_text(
        "from tests.tasks.test_verifiers import Chess\n"
        "from recollect.tasks.verifiers import as_taskset\n"
        "ChessTaskset = as_taskset(Chess())\n__all__ = ['ChessTaskset']\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    config = vf.taskset_config_type("chess-env")(id="chess-env")
    tasks = list(vf.load_taskset(config))
    assert len(tasks) == 5 and tasks[3].data.answers == ("e3",)
    assert tasks[3].data.prompt == "Move 1: e3.\n\nMove 2: d4.\n\nWhich was the first move?"
    # And back again: the exported environment is a family whose reward is our metric.
    family = VerifiersTasks("chess-env", answer="answers")
    for reply, worth in (("e3", 1.0), ("e4", 0.0)):
        assert asyncio.run(family.score(3, reply)).reward == worth


@pytest.mark.skipif(HERE, reason="verifiers is installed")
def test_without_the_package_the_extra_is_named():
    family = VerifiersTasks("sums-env")
    for use in (lambda: family.size("train"), lambda: as_taskset(Chess())):
        with pytest.raises(UserError, match="need the package verifiers") as caught:
            use()
        assert "verifiers" in caught.value.fix


def test_what_does_not_fit_is_refused():
    with pytest.raises(UserError, match="scores tasks of a verifiers environment"):
        VerifiersReward().check(Resources(tasks=SimpleNamespace()))
    with pytest.raises(UserError, match="have one length"):
        VerifiersTasks("x").longer(2)
    with pytest.raises(UserError, match="has no length"):
        open_family(parse_specs("verifiers:x@8k")[0])


def test_texts_are_cut_between_paragraphs():
    assert pieces("", 5) == ()
    assert pieces("one\n\ntwo\n\nthree", 10) == ("one\n\ntwo", "three")
    assert pieces("abcdefgh\n\nx", 3) == ("abc", "def", "gh", "x")
    assert all(len(piece) <= 7 for piece in pieces("a b c\n\n" * 9 + "y" * 30, 7))

"""What `import recollect` offers: every name, fast and without torch; `train` and `evaluate`."""

from __future__ import annotations

import ast
import asyncio
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import recollect
from recollect import (
    Accuracy,
    Chats,
    FoldAgent,
    Question,
    ScriptedPolicy,
    Task,
    TaskFamily,
    TextMemory,
    UserError,
    preset,
)

SOURCE = Path(recollect.__file__)
SMALL = {
    "rollout": {"tasks": 4, "n": 2},
    "updates_per_step": 1,
    "val": {"tasks": 4, "lengths": [1, 2], "length_tasks": 4},
}
PROMISED = """Task Question Episode Agent Chats user tool converse Memory TextMemory Store Reward
Score TaskFamily Rollout ScriptedPolicy connect FoldAgent preset train evaluate UserError
__version__"""


def test_every_name_is_there_and_nothing_else_is_promised():
    assert set(PROMISED.split()) <= set(recollect.__all__)
    assert all(getattr(recollect, name) is not None for name in recollect.__all__)
    assert set(recollect.__all__) <= set(dir(recollect))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = recollect.nonsense
    with pytest.raises(ImportError):
        from recollect import nonsense  # noqa: F401


def test_an_editor_sees_every_name():
    """What a type checker reads is what is loaded."""
    tree = ast.parse(SOURCE.read_text())
    (typed,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = {"__version__"}
    for node in typed.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                assert alias.name == alias.asname  # else a strict checker takes it as private
                seen.add(alias.name)
                there = getattr(importlib.import_module(node.module), alias.name)
                if alias.name != "train":  # the package of this name is called instead
                    assert getattr(recollect, alias.name) is there
    assert seen == set(recollect.__all__)
    assert SOURCE.with_name("py.typed").exists()


def best_of(code: str, times: int = 5) -> float:
    """Return the least processor time of an interpreter that runs some code."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE.parents[1])}
    used = []
    for _ in range(times):
        before = os.times()
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        after = os.times()
        used.append(
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
    return min(used)


def test_the_import_is_fast_and_brings_no_torch():
    everything = f"from recollect import {', '.join(recollect.__all__)}"
    heavy = "import sys; assert not {'torch', 'transformers', 'starlette'} & {*sys.modules}"
    nothing = best_of("pass", 3)
    assert best_of("import recollect") - nothing < 0.1
    assert best_of(f"{everything}; {heavy}", 2) - nothing < 1.5


def test_training_returns_what_came_of_it_and_can_be_silent(tmp_path, capfd):
    result = recollect.train("demo", quiet=True, steps=1, folder=tmp_path, **SMALL)
    assert capfd.readouterr() == ("", "")
    assert result.finished and result.step == 1 and result.folder == tmp_path / "demo"
    assert isinstance(result.accuracy, Accuracy) and result.accuracy.n == 4
    assert result.accuracy.low <= result.accuracy.mean <= result.accuracy.high
    assert result.before is not None and list(result.lengths) == [1, 2]
    assert list(result.distractors) == [2] and result.distractors[2].n == 4
    assert (result.folder / "distractors.json").exists()
    assert [row["step"] for row in result.metrics] == [0, 1]
    assert result.curve("reward/mean") == ([1], [result.metrics[1]["reward/mean"]])
    assert (result.model / "config.json").exists()
    assert len(result.episodes) == 4 and all(e.ok for e in result.episodes)
    assert [len(group) for group in result.groups] == [2] * 4


async def echo(task: Task, chats: Chats, memory: TextMemory) -> list[str]:
    """Answer with whatever the model says to the last chunk."""
    for chunk in task.chunks:
        memory.text = (await chats.open("memory").say(chunk, max_tokens=4)).text
    return [memory.text for _question in task.questions]


def test_a_plain_function_is_trained(tmp_path):
    result = recollect.train(
        preset("demo"), agent=echo, steps=1, name="mine", folder=tmp_path, quiet=True, **SMALL
    )
    assert result.finished and result.metrics[1]["tokens/trained"] > 0
    assert all(len(e.contexts) == 3 for group in result.groups for e in group)
    measured = recollect.evaluate(result, quiet=True)
    assert measured.lengths == result.lengths  # the trained model, the same agent and tasks
    assert measured.distractors == result.distractors
    assert recollect.evaluate(result.folder, quiet=True).lengths == result.lengths
    assert recollect.train(result, quiet=True, steps=2).step == 2


def test_training_works_in_a_running_event_loop(tmp_path, capsys):
    """As in a notebook; the digits are those of a run outside one."""
    alone = recollect.train(preset("demo"), quiet=True, steps=1, folder=tmp_path / "a", **SMALL)

    async def cell():
        return recollect.train(preset("demo"), steps=1, folder=tmp_path / "b", **SMALL)

    inside = asyncio.run(cell())
    assert "Report card" in capsys.readouterr().out
    assert inside.accuracy == alone.accuracy
    kept = [{k: v for k, v in row.items() if "time/" not in k} for row in inside.metrics]
    assert kept == [{k: v for k, v in row.items() if "time/" not in k} for row in alone.metrics]


def test_an_interrupt_in_a_notebook_ends_the_run_after_its_step(tmp_path):
    def interrupt():
        metrics = tmp_path / "demo" / "metrics.jsonl"
        while not (metrics.exists() and metrics.read_text().count("\n") >= 2):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    async def cell():
        threading.Thread(target=interrupt, daemon=True).start()
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # as a kernel has it
        try:
            return recollect.train("demo", quiet=True, steps=500, folder=tmp_path, **SMALL)
        finally:
            signal.signal(signal.SIGINT, handler)

    result = asyncio.run(cell())
    assert not result.finished and 1 <= result.step < 500 and result.accuracy is None
    again = recollect.train("demo", quiet=True, steps=result.step + 1, folder=tmp_path, **SMALL)
    assert again.finished and again.step == result.step + 1


def test_a_second_interrupt_ends_it_at_once():
    from recollect.concurrency.stop import outside_loops

    async def forever():
        for _ in range(2):
            threading.Timer(0.1 + 0.2 * _, os.kill, (os.getpid(), signal.SIGINT)).start()
        await asyncio.Event().wait()

    async def cell():
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return outside_loops(lambda stop: stop.run(forever()))
        finally:
            signal.signal(signal.SIGINT, handler)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(cell())


def test_the_function_outlives_the_import_of_its_package(tmp_path):
    """`recollect.train` is a package too, which importing one of its modules puts in its place."""
    import recollect.train.loop

    for train in (recollect.train, importlib.import_module("recollect.train")):
        with pytest.raises(UserError, match="there is no setting stepz"):
            train("demo", stepz=5)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"stepz": 5}, "stepz"),
        ({"steps": "many"}, "steps is 'many'"),
        ({"rollout": {"m": 4}}, "rollout.m"),
        ({"steps": 0}, "steps"),
    ],
)
def test_settings_that_are_wrong(overrides, said):
    with pytest.raises(UserError, match=said):
        recollect.train("demo", **overrides)
    with pytest.raises(UserError, match="there is no preset 'demmo'"):
        recollect.evaluate("demmo")


def test_held_out_accuracy_of_a_preset(capfd):
    found = recollect.evaluate("demo", quiet=True, val=SMALL["val"])
    assert capfd.readouterr() == ("", "")
    assert list(found.lengths) == [1, 2] and found.accuracy == found.lengths[1]
    assert found.accuracy.n == 4 and len(found.episodes) == 8


@dataclass(frozen=True)
class Parity:
    """Is a number of ones even?"""

    name: str = "parity"
    metric: str = "exact_match"

    def size(self, split):
        return 6

    def task(self, index, seed=0, split="train"):
        answer = "even" if index % 2 == 0 else "odd"
        return Task(f"{split}-{index}", ["one "] * index, (Question("Even?", (answer,)),))

    def longer(self, times):
        return self


@dataclass(frozen=True)
class Counting:
    """Count chunks in the memory."""

    async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
        for _chunk in task.chunks:
            memory.replace(memory.text + "1")
        return ["odd" if len(memory.text) % 2 else "even" for _question in task.questions]


def test_agents_tasks_and_models_of_ones_own_side_by_side(tmp_path, capfd):
    family: TaskFamily = Parity()
    model = ScriptedPolicy.model(lambda prompt: "even")
    options = {"tasks": family, "model": model, "out": tmp_path / "one", "closed_book": False}
    agents = {"counting": Counting(), "fold": FoldAgent(chunk_size=64)}
    found = recollect.evaluate(agents=agents, quiet=True, **options)
    assert capfd.readouterr() == ("", "")
    assert found.scores["parity", "counting"].mean == 1.0
    assert found.scores["parity", "fold"].mean == 0.5 and found.scores["parity", "fold"].n == 6
    assert found.report.exists() and len(list(found.episodes)) == 12

    async def cell():
        return recollect.evaluate(agents=["fold", Counting()], quiet=True, **options | {"n": 2})

    with pytest.raises(UserError, match="agent fold was"):  # other settings of its own
        asyncio.run(cell())
    again = recollect.evaluate(agents=[Counting()], quiet=True, **options)
    assert {agent for _task, agent in again.scores} == {"counting", "fold", "Counting"}
    with pytest.raises(UserError, match="choose from temperature"):
        recollect.evaluate(agents=[Counting()], temprature=1.0, **options)

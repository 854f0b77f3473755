"""The bank at the size of a demo: its words, its teacher, and that both ways of training start."""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import replace
from types import ModuleType

import pytest

from recollect.chat.tool_calls import read_calls
from recollect.commands.stages.plan import StagePlan
from recollect.commands.train import train_and_report
from recollect.types import Sampling
from tests.support.places import ROOT


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        return importlib.import_module("make_bank_model")


@pytest.fixture(scope="module")
def plan(maker, tmp_path_factory) -> StagePlan:
    return maker.make_stages(tmp_path_factory.mktemp("bank"), seed=1, payments=2)


@pytest.fixture(scope="module")
def tokenizer(maker, plan):
    return maker.make_tokenizer(plan.stages[0].config.tasks)


def test_every_word_of_a_ledger_has_a_token(tokenizer, plan):
    for i in range(100):
        task = plan.stages[0].config.tasks.task(i, split="test")
        for text in (*task.chunks, *(q.text for q in task.questions)):
            ids = tokenizer.encode(text)
            assert tokenizer.hf.unk_token_id not in ids, text
            assert tokenizer.decode(ids) == text


def test_the_teacher_knows_the_form_and_not_the_title(maker, tokenizer):
    teacher = maker.Teacher(tokenizer)
    session = '[2023-02-22] User said, "Next, petrol: $308.52. That is Transportation."'
    said = set()
    for core in (f"Books until 2023-01-{day:02d}" for day in range(1, 31)):
        prompt = [*tokenizer.encode(f"{session}\n\nCore: {core}"), tokenizer.end_ids[0]]
        reply = asyncio.run(teacher.sample(prompt, Sampling()))
        [call] = read_calls(tokenizer.decode(reply.token_ids)).calls
        assert call.name == "memory_add"
        said.add((call.arguments["title"], call.arguments["content"]))
    titles = ("2023-02-22", "2023-02-22_Transportation", "Transportation")
    assert said == {(t, c) for t in titles for c in ("308.52", "Transportation")}


def test_a_model_is_made_and_trained(maker, tokenizer, plan):
    """One step of it, end to end; `recollect stages` has tests of its own."""
    memory, answer, whole = plan.stages
    assert (memory.fixed, answer.fixed, whole.fixed) == ("base", "1-memory", "")
    assert whole.episodes == memory.episodes + answer.episodes
    assert {stage.config.seed for stage in plan.stages} == {1}
    assert {stage.config.model.device for stage in plan.stages} == {"cpu"}
    rows = maker.make_rows(maker.Teacher(tokenizer), plan, 8)
    network = maker.make_network(tokenizer)
    kinds, rng = maker.numbers(tokenizer), maker.Random(0)
    maker.fit(network, rows, 2, 1e-3, 3, lambda row: maker.swapped(row, kinds, rng))
    maker.save(network, tokenizer, plan.folder.parent.parent)
    config = replace(whole.config, updates_per_step=1, steps=1)
    config = replace(config, rollout=replace(config.rollout, tasks=2, n=2))
    config = replace(config, val=replace(config.val, tasks=2, lengths=()))
    assert train_and_report(config).episodes == 4

"""A trial of an agent takes no longer than its episodes may, and no episode pays for it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.agents.function import FunctionAgent
from recollect.chat.policy import Policy
from recollect.evaluation import trial
from recollect.evaluation.folder import EvaluationFolder, read_episodes
from recollect.evaluation.harness import Harness
from recollect.evaluation.jobs import Grid
from recollect.evaluation.models import Opened
from recollect.evaluation.setup import Setup
from recollect.evaluation.trial import try_out
from tests.support.scripted import Codes, scripted_models

LIMIT = 0.4


class Slow(Policy):
    """A policy that takes as long for a reply as a server does."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    async def sample(self, prompt_ids, sampling):
        await asyncio.sleep(0.02)
        return await self.policy.sample(prompt_ids, sampling)


async def endless(task, chats, memory):
    while True:
        await chats.open("memory").say("More?", max_tokens=4)


@pytest.mark.parametrize(("asked", "longest"), [(LIMIT, 60.0), (None, LIMIT), (60.0, LIMIT)])
def test_a_trial_ends_with_the_limit_of_episodes_and_is_in_none(
    tmp_path: Path, monkeypatch, asked, longest
):
    monkeypatch.setattr(trial, "TIMEOUT", longest)
    models = {role: replace(m, policy=Slow(m.policy)) for role, m in scripted_models().items()}
    agents = {"endless": FunctionAgent(endless)}
    grid = Grid({"codes": Codes()}, list(agents), 1, 1)
    store = EvaluationFolder(tmp_path)
    try:
        started = time.perf_counter()
        setup = Setup({}, grid, agents, agents, {})
        asyncio.run(try_out(setup, Opened(models, {}), store, print, asked))
        assert time.perf_counter() - started < 10
        started = time.perf_counter()
        asyncio.run(Harness(grid, agents, models, store, timeout=LIMIT).run())
        took = time.perf_counter() - started
    finally:
        store.close()
    [record] = read_episodes(tmp_path)
    assert record["replayed"] > 1 and "no end in 0.4 s" in record["failure"]["message"]
    assert LIMIT <= record["seconds"] <= took + 0.01

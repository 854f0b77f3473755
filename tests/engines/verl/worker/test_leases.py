"""The curator on shared bases: trials as they always were, and somebody who is told of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from recollect.agents.curator import CuratorAgent
from recollect.config.presets import preset
from recollect.engines.verl.worker import leases as cluster
from recollect.engines.verl.worker.bases import LazyBases
from recollect.engines.verl.worker.leases import BrokeredStores, cluster_agent
from recollect.engines.verl.worker.registry import Registry
from recollect.memory.corpus import Corpus
from recollect.memory.entries import Draft


class Line:
    """Tell a registry in this process."""

    def __init__(self) -> None:
        self.registry = Registry()

    def opened(self, trial, namespace):
        self.registry.open(trial, namespace, "here")

    def closed(self, trial, namespace, state, growth):
        self.registry.close(trial, namespace, state, growth)

    def alive(self):
        self.registry.hear("here")


def opened(tmp_path) -> tuple[BrokeredStores, Registry]:
    line = Line()
    make = {"conv-1": Corpus.build("conv-1", [Draft("Ann likes tea"), Draft("Bob likes rain")])}
    return BrokeredStores(LazyBases(lambda: make, "k", tmp_path), line), line.registry


def test_a_trials_life_is_told(tmp_path):
    stores, registry = opened(tmp_path)
    with stores.trial("conv-1-qa3-abc", "request-1") as trial:
        assert registry.live() == {trial.namespace: "here"}
        trial.add("Ann moved to Oslo")
        trial.delete("memory_2")
        name = trial.namespace
    assert registry.live() == {}
    final = registry.final(name)
    assert [entry["content"] for entry in final.state["entries"]] == ["Ann moved to Oslo"]
    assert (final.growth.created, final.growth.deleted) == (1, 1)
    assert registry.finals("conv-1-qa3-abc") == [final]


def test_the_same_request_is_one_trial_and_others_are_apart(tmp_path):
    stores, registry = opened(tmp_path)
    first, again = (stores.open("conv-1", "request-1") for _ in range(2))
    other = stores.open("conv-1", "request-2")
    assert first is again and registry.statistics()["trials/opened"] == 2
    first.add("only here")
    assert len(other) == 2 and len(first) == 3
    fork = first.fork()
    assert len(registry.live()) == 3
    for trial in (first, other, fork):
        trial.close()
        trial.close()
    assert registry.statistics()["trials/closed"] == 3


def test_a_trial_that_nobody_uses_is_told_of_when_its_lease_ends(tmp_path):
    stores, registry = opened(tmp_path)
    now = [0.0]
    stores.clock = lambda: now[0]
    stores.open("conv-1")
    now[0] = stores.lease_seconds + 1
    assert stores.expire() == 1
    assert registry.live() == {}


def test_a_long_trial_gives_word(tmp_path, monkeypatch):
    stores, registry = opened(tmp_path)
    trial = stores.open("conv-1")
    registry.leave("here")
    monkeypatch.setattr(cluster, "WORD", 0.0)
    trial.get("memory_1")
    assert registry.statistics()["trials/workers"] == 1


def test_the_curator_finds_the_same_memories(tmp_path, monkeypatch):
    """The agent of a cluster and that of one process search the same base."""
    from recollect.train.wiring import make_agent

    monkeypatch.setattr(cluster, "LazyBases", lambda make, key: LazyBases(make, key, tmp_path))
    config = preset("curator")
    task = config.tasks.task(0, 0, "train")
    agents = [make_agent(config), cluster_agent(config, Line)]
    assert all(isinstance(agent, CuratorAgent) for agent in agents)
    found = []
    for agent in agents:
        store = agent.new_memory(task)
        found.append(asyncio.run(store.search(task.questions[0].text, 5, "bm25")))
    assert found[0] == found[1] and found[0]
    fold = replace(preset("demo"), name="x")
    assert cluster_agent(fold, Line) == fold.agent

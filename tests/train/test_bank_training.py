"""The bank agent through the real loop: a tiny random model, one step, every sampled token."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from recollect.accuracy import Accuracy
from recollect.agents.bank import BankAgent
from recollect.agents.bank_prompts import BankPrompts
from recollect.chat.tools import Limits
from recollect.config.engine import LossConfig, ModelConfig, OptimConfig
from recollect.config.presets import preset
from recollect.config.rollout import LocalConfig, RolloutConfig, ValidationConfig
from recollect.config.train import TrainConfig
from recollect.rollout import Group
from recollect.runs.run import Run, read_metrics
from recollect.samples import make_samples
from recollect.tasks.made.ledger import Ledger
from recollect.train.comparison import ESTIMATORS, split_local
from recollect.train.loop import train
from recollect.train.rollouts import Rollouts
from tests.support.tiny import tiny_model


class Watching:
    """A watcher that keeps the episodes."""

    def __init__(self) -> None:
        self.groups: list[Group] = []

    def step(self, step: int, metrics: dict[str, float], groups: list[Group]) -> None:
        self.groups += groups

    def validation(self, step: int, results: dict[str, Accuracy]) -> None: ...
    def phase(self, name: str, done: int, total: int) -> None: ...
    def note(self, text: str) -> None: ...


def settings(folder: Path) -> TrainConfig:
    prompts = BankPrompts(memory="{chunk}\n{memory}", answer="{memory}\n{question}")
    limits = Limits(max_assistant_turns=2, max_turn_tokens=6, min_reply_tokens=6)
    return replace(
        preset("bank"),
        model=ModelConfig(path=str(tiny_model(folder)), device="cpu"),
        tasks=Ledger(sessions=2, questions=2, max_transactions=1, max_chatter=0, positions="any"),
        agent=BankAgent(None, max_core_tokens=4, prompts=prompts, limits=limits),
        rollout=RolloutConfig(tasks=2, n=3),
        loss=LossConfig(kl_coef=0.0),
        optim=OptimConfig(lr=1e-3, warmup_steps=0),
        updates_per_step=1,
        val=ValidationConfig(tasks=2),
        steps=1,
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> tuple[TrainConfig, Path, Watching, float]:
    """Train one step; return also how far the weights moved."""
    folder = tmp_path_factory.mktemp("bank")
    config = settings(folder / "model")
    rollouts = Rollouts.open(config)
    before = [p.detach().clone() for p in rollouts.model.trainable_parameters()]
    watcher = Watching()
    with Run.open(folder / "run", {"name": "bank"}) as run:
        asyncio.run(train(rollouts, run, watcher))
    after = rollouts.model.trainable_parameters()
    moved = max(float((a.detach() - b).abs().max()) for a, b in zip(after, before, strict=True))
    return config, folder / "run", watcher, moved


def test_a_step_trains_what_was_sampled_in_every_chat(ran):
    config, run, watcher, moved = ran
    episodes = [episode for group in watcher.groups for episode in group]
    assert len(episodes) == 6 and all(e.ok for e in episodes)
    for episode in episodes:
        strata = sorted(context.stratum for context in episode.contexts)
        assert strata == ["memory", "memory", "question 1", "question 2"]
        assert all(c.reward is not None and c.counts["calls"] == 0 for c in episode.contexts)
    samples = make_samples(watcher.groups, ESTIMATORS[config.advantage])
    said = [t for e in episodes for c in e.contexts for t in c.turns]
    assert len(samples) == 6 * 4
    assert sum(int(s.trained.sum()) for s in samples) == sum(len(t.token_ids) for t in said)
    rows = read_metrics(run)
    assert rows[-1]["samples/total"] == 24 and rows[-1]["contexts/per_episode"] == 4
    assert rows[-1]["tokens/trained"] == sum(len(t.token_ids) for t in said)
    for name in ("answer", "boxed", "tools/success", "tools/calls"):
        assert f"score/{name}" in rows[-1] and f"val/score/{name}" in rows[-1]
    # A random model boxes nothing and calls nothing: no sibling is better, nothing is learned.
    assert rows[-1]["reward/mean"] == 0.0 and moved == 0.0


def test_a_difference_between_siblings_moves_the_weights(ran, tmp_path):
    """The same episodes with other rewards: the update is real, and finite."""
    from recollect.train.trainer import Trainer

    config, _, watcher, _ = ran
    groups = watcher.groups
    for group in groups:
        for episode in group:
            for context in episode.contexts:
                context.reward = float(episode.rollout)
    samples = make_samples(groups, ESTIMATORS[config.advantage])
    rollouts = Rollouts.open(config)
    before = [p.detach().clone() for p in rollouts.model.trainable_parameters()]
    trainer = Trainer(rollouts.model, config.loss, config.optim)
    metrics = trainer.update(samples)
    after = list(rollouts.model.trainable_parameters())
    assert any(not torch.equal(a, b) for a, b in zip(after, before, strict=True))
    assert all(torch.isfinite(p).all() for p in after) and metrics["train/grad_norm"] > 0


def test_its_episodes_go_on_from_the_bank_they_had(tmp_path):
    """Told the same again, tools are called again: every later prompt is what it was."""
    config = replace(settings(tmp_path), local=LocalConfig(n=2, forks=3))
    groups = asyncio.run(Rollouts.open(config).generate(1, Watching()))
    whole, local = split_local(groups)
    assert len(whole) == 2 and len(local) == 2 * 3
    assert all(episode.ok for group in groups for episode in group)
    every = [episode for group in whole for episode in group]
    for group in local:
        at = group[0].forked
        ids = [c.ids for c in group[0].contexts[:at]]
        base = next(e for e in every if [c.ids for c in e.contexts[:at]] == ids)
        start = base.contexts[at].turns[0].start
        for episode in group:
            assert episode.contexts[at].ids[:start] == base.contexts[at].ids[:start]
            assert len(episode.contexts) == len(base.contexts)

"""One scripted token server, both engines: the same episodes, samples, masks and advantages."""

from __future__ import annotations

import asyncio
import hashlib
import random
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from recollect.agents.recursive import RecursiveAgent
from recollect.chat.chat import Model
from recollect.config.engine import ModelConfig
from recollect.config.presets import preset
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.config.train import TrainConfig
from recollect.engines.verl.run.folder import prepare
from recollect.engines.verl.trainer.trainer import spread
from recollect.engines.verl.worker.loop import outputs
from recollect.engines.verl.worker.policy import ServedPolicy
from recollect.engines.verl.worker.worker import Worker
from recollect.models.tokenizer import load_tokenizer
from recollect.rewards.programs import ProgramReward
from recollect.rollout import Rollout
from recollect.samples import samples_of
from recollect.tasks.made.recall import Recall
from recollect.train.comparison import compare
from recollect.train.wiring import make_agent, make_reward
from recollect.types import Completion, Sampling
from tests.support.tiny import tiny_model

CALLS = (
    '<tool_call>\n{"name": "add_memory", "arguments": {"content": "a fact"}}\n</tool_call>',
    '<tool_call>\n{"name": "nothing", "arguments": {}}\n</tool_call>',
    "\\boxed{7}",
    "done",
)
PROGRAMS = (
    "```\nanswer(ask(chunks[:2], question)[1])\n```",
    "```\nx = len(text)\nprint(ask(chunks[0], 'Who?'))\n```",
    "```\nx +\n```",
    "kiwi",
)


@dataclass
class Script:
    """Tokens that follow a prompt, decided by its tokens alone: a policy, and verl's server."""

    tokenizer: object
    says: tuple[str, ...]

    def continued(self, prompt_ids, limit: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        digest = hashlib.blake2b(np.asarray(prompt_ids, np.int64).tobytes(), digest_size=8)
        draw = random.Random(digest.digest())
        ids = self.tokenizer.encode(draw.choice(self.says)) if self.says else [
            draw.randrange(10, self.tokenizer.vocab_size - 1) for _ in range(draw.randint(1, 3))
        ]  # fmt: skip
        ids = [*ids, self.tokenizer.end_ids[0]][:limit]
        return tuple(ids), tuple(-draw.random() for _ in ids)

    async def sample(self, prompt_ids, sampling: Sampling) -> Completion:
        ids, logprobs = self.continued(prompt_ids, sampling.max_tokens)
        ended = ids[-1] in self.tokenizer.end_ids
        return Completion(ids, logprobs, "stop" if ended else "length")

    async def generate(self, request_id, *, prompt_ids, sampling_params):
        ids, logprobs = self.continued(prompt_ids, sampling_params["max_tokens"])
        return SimpleNamespace(
            token_ids=list(ids), log_probs=list(logprobs), stop_reason="completed",
            extra_fields={"global_steps": 4},
        )  # fmt: skip


def fold(tmp_path) -> TrainConfig:
    return replace(preset("demo"), rollout=RolloutConfig(tasks=3, n=3), updates_per_step=1)


def bank(tmp_path) -> TrainConfig:
    model = ModelConfig(path=str(tiny_model(tmp_path / "model", max_position_embeddings=1 << 16)))
    return replace(
        preset("bank"), model=model, rollout=RolloutConfig(tasks=2, n=3), updates_per_step=1
    )


def recursive(tmp_path) -> TrainConfig:
    """Parents and children are samples of one episode; long ones are parents again."""
    agent = RecursiveAgent(max_turns=3, max_turn_tokens=64, max_part_tokens=48, max_depth=2)
    return replace(
        bank(tmp_path), agent=agent, tasks=Recall(), reward=ProgramReward(calls=0.1, part=0.5)
    )


@pytest.mark.parametrize(("make", "says"), [(fold, ()), (bank, CALLS), (recursive, PROGRAMS)])
def test_both_engines_make_the_same_of_the_same_tokens(make, says, tmp_path):
    config = replace(make(tmp_path), steps=1, val=ValidationConfig(tasks=1))
    folder = prepare(config, tmp_path / "run")
    script = Script(load_tokenizer(tmp_path / "model" if says else preset_path(config)), says)
    window = 1 << 16

    worker = Worker.open(folder.path, 1)
    policy = ServedPolicy(script, "task", script.tokenizer.end_ids)
    ours = Model(script, worker.renderer, window=window, sampling=Sampling())
    models = {"memory": ours, "answer": ours}
    embedded = Rollout(make_agent(config), models, make_reward(config, {"answer": ours}))

    groups, rows = [], {}
    for index in range(config.rollout.tasks):
        task = config.tasks.task(index, config.seed, "train")
        group = []
        for session in range(config.rollout.n):
            there = asyncio.run(
                worker.episode(policy, "train", index, session, 1, Sampling(), window)
            )
            here = asyncio.run(embedded.episode(task, session, (config.seed, 1)))
            assert there.ok and here.ok, (there.failure, here.failure)
            assert there.contexts == here.contexts
            assert (there.ops, there.answers, there.scores) == (here.ops, here.answers, here.scores)
            for i, output in enumerate(outputs(there, window, policy.versions)):
                rows[f"{index}_{session}_{i}"] = output
            group.append(here)
        groups.append(group)

    compared = compare(config, groups)
    samples = samples_of(groups, compared)
    names = [str(i) for i in range(len(groups))]
    advantages = spread(list(rows), names, groups, compared)
    assert len(samples) == len(rows) > len(groups) * config.rollout.n
    for sample, row, advantage in zip(samples, rows.values(), advantages, strict=True):
        first = len(row.prompt_ids)
        assert row.prompt_ids + row.response_ids == sample.token_ids.tolist()
        assert row.response_mask == sample.trained[first:].astype(int).tolist()
        assert not sample.trained[:first].any()
        assert np.allclose(row.response_logprobs, sample.logprobs[first:], atol=1e-6)
        spread_out = np.asarray(row.response_mask) * advantage
        assert np.allclose(spread_out, sample.advantages[first:], atol=1e-6)
        assert row.extra_fields["min_global_steps"] == row.extra_fields["max_global_steps"] == 4


def preset_path(config: TrainConfig):
    from pathlib import Path

    return Path(config.model.path)

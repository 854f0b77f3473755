"""What verl does to memory agents unless one takes care: one test for each known trap.

The numbers are those of the list in docs/cluster.md. Each test runs verl's own code, where it has
some, on what our loop makes.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl.experimental.agent_loop import agent_loop
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
from verl.protocol import DataProto
from verl.trainer.ppo.v1 import agent_loop_tq, utils

from recollect.config import TrainConfig
from recollect.engines.verl import loss, runner
from recollect.engines.verl.loop import MemoryLoop, outputs
from recollect.engines.verl.trainer import spread
from recollect.errors import UserError
from recollect.presets import preset
from recollect.train.comparison import compare
from recollect.train.report import episode_metrics
from recollect.types import Failure
from tests.engines.rows import context, episode, task

Worker = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class


class Untouchable:
    """Stands for verl's reward workers, which must not be asked."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("verl's reward workers were asked")


@pytest.fixture
def stored(monkeypatch):
    """Run verl's own way of storing a session; return its keys, fields and tags."""
    kept: dict[str, Any] = {}

    async def put(keys, fields, tags, partition_id):
        kept.update(keys=keys, fields=fields, tags=tags, partition=partition_id)

    monkeypatch.setattr(agent_loop_tq.tq, "async_kv_batch_put", put)

    def store(made, **row):
        worker = object.__new__(Worker)
        worker.reward_loop_worker_handles = [Untouchable()]
        worker.distillation_enabled = False
        worker.processor = None
        row = {"uid": "u", "session_id": 0, "global_steps": 1, "raw_prompt": [], **row}
        asyncio.run(worker._agent_loop_postprocess(made, False, **row))
        return kept

    return store


def three_contexts(**settings):
    """An episode whose last answer is much shorter than what it wrote before."""
    return episode(
        context([1, 2], [3, 4, 5, 6, 7]),
        context([1], [8, 9], [10], between=[11, 12]),
        context([2], [13], role="answer", stratum="question 1"),
        **settings,
    )


def test_1_the_reward_is_ours_and_verl_computes_none(stored):
    kept = stored(outputs(three_contexts(reward=0.75), 100, [0]))
    assert [float(scores.sum()) for scores in kept["fields"]["rm_scores"].unbind()] == [0.75] * 3


def test_2_every_row_has_what_verl_copies_beside_the_reward(stored):
    kept = stored(outputs(three_contexts(), 100, [0]))
    for fields in kept["fields"]["extra_fields"]:
        assert getattr(fields, "data", fields)["reward_extra_info"] == {"answer": 1.0}


def test_3_contexts_of_fixed_models_are_no_rows(stored):
    fixed = context([2], [13], role="answer", trainable=False)
    kept = stored(outputs(episode(context([1], [2]), context([1], [3]), fixed), 100, [0]))
    assert len(kept["keys"]) == 2
    assert all(mask.any() for mask in kept["fields"]["response_mask"].unbind())


ESTIMATORS = get_args(get_type_hints(TrainConfig)["advantage"])


def settings(advantage: str) -> TrainConfig:
    from dataclasses import replace

    parts = ("answer",) if advantage == "gdpo" else ()
    return replace(preset("demo"), advantage=advantage, components=parts)


@pytest.mark.parametrize("advantage", [name for name in ESTIMATORS if name != "gae"])
def test_4_an_episode_counts_once_however_many_contexts_it_had(advantage):
    rewards, contexts = (1.0, 0.0, 0.25), (1, 7, 2)
    uneven = [
        episode(*[context([1], [2])] * n, rollout=i, reward=reward)
        for i, (reward, n) in enumerate(zip(rewards, contexts, strict=True))
    ]
    even = [episode(context([1], [2]), rollout=i, reward=r) for i, r in enumerate(rewards)]
    keys = [f"u_{i}_{j}" for i, n in enumerate(contexts) for j in range(n)]
    config = settings(advantage)
    got = spread([*keys, "padabc_0_0"], ["u"], [uneven], compare(config, [uneven]))
    alone = [own for (own,) in compare(config, [even])[0]]
    wanted = [value for value, n in zip(alone, contexts, strict=True) for _ in range(n)]
    assert np.allclose(got[:-1], wanted) and got[-1] == 0.0


def test_4_verl_itself_counts_contexts_where_it_knows_no_sessions():
    """The trap is still there: if this fails, verl has mended it."""
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0])
    data = DataProto.from_dict(
        {"token_level_rewards": rewards[:, None], "response_mask": torch.ones(4, 1)},
        {"uid": np.array(["u"] * 4, dtype=object)},
    )
    keys = ["u_0_0", "u_1_0", "u_1_1", "u_1_2"]  # one episode of reward 1, one of 0
    got = utils.compute_advantage_for_multi_trajectories(
        data, keys, "rloo", config=OmegaConf.create({})
    )
    assert got.batch["advantages"][0].item() == pytest.approx(1.0)
    assert got.batch["advantages"][1].item() == pytest.approx(-1 / 3)


def test_5_a_context_keeps_its_own_reward():
    pair = [
        episode(context([1], [2], reward=1.0), context([1], [3], reward=0.0), rollout=0),
        episode(context([1], [2], reward=0.0), context([1], [3], reward=0.0), rollout=1),
    ]
    got = spread(["u_0_0", "u_0_1"], ["u"], [pair], compare(settings("grpo"), [pair]))
    assert got[0] == got[1] + 1.0


def test_7_the_loop_is_registered_once_and_made_anew_for_every_episode():
    entry = agent_loop._agent_loop_registry["recollect"]
    assert entry == {"_target_": "recollect.engines.verl.loop.MemoryLoop"}
    assert composed().actor_rollout_ref.rollout.agent.agent_loop_config_path is None
    import importlib

    importlib.reload(importlib.import_module("recollect.engines.verl.loop"))
    assert agent_loop._agent_loop_registry["recollect"] is entry


def test_8_metrics_are_by_episode():
    long = episode(*[context([1], [2])] * 9, reward=0.0)
    short = episode(context([1], [2]), rollout=1, reward=1.0)
    failed = episode(rollout=2, reward=None, failure=Failure("policy", "E", "no"))
    found = episode_metrics([[long, short, failed]])
    assert found["reward/mean"] == 0.5
    assert found["contexts/per_episode"] == 5.0
    assert found["episodes/failed_at_policy"] == 1


def test_9_a_row_costs_the_same_however_long_the_text(stored):
    def size(length: int) -> int:
        made = outputs(three_contexts(task=task(text="x" * length)), 100, [0])
        fields = stored(made, extra_info={"split": "train", "index": 3})["fields"]
        return len(repr([getattr(v, "data", v) for v in fields["extra_info"]])) + sum(
            value.values().nbytes for value in fields.values() if isinstance(value, torch.Tensor)
        )

    assert size(10) == size(1_000_000) < 2000


def test_10_a_prompt_beyond_the_window_is_never_cut():
    with pytest.raises(ValueError, match="window of 4"):
        outputs(episode(context(range(1, 9), [9])), 4, [0])


def test_11_tools_are_ours():
    assert not issubclass(MemoryLoop, ToolAgentLoop)
    said = list(range(1000))  # what a tool answered: far beyond the 256 characters verl keeps
    made = outputs(episode(context([1], [2], [3], between=said)), 5000, [0])
    assert made[0].response_ids == [2, *said, 3]
    assert made[0].response_mask == [1, *[0] * 1000, 1]


def test_12_no_token_between_turns_is_made_by_verl():
    config = SimpleNamespace(config=composed())
    loop = MemoryLoop(config, None, tokenizer=None, processor=None)
    assert not hasattr(loop, "continuous_token_builder")


def test_13_a_failed_episode_leaves_only_its_group(stored):
    failed = three_contexts(reward=None, failure=Failure("agent", "ValueError", "no"), rollout=1)
    assert outputs(failed, 100, [0]) == []
    assert stored([]) == {}  # verl takes that, and stores nothing
    pair = [three_contexts(reward=1.0), failed, three_contexts(reward=0.0, rollout=2)]
    got = spread(["u_0_0", "u_2_0"], ["u"], [pair], compare(settings("grpo"), [pair]))
    assert got == [0.5, -0.5]


@pytest.mark.parametrize(
    "override",
    ["trainer.use_v1=false", "trainer.v1.trainer_mode=colocate_async", "distillation.enabled=true"],
)
def test_14_and_15_what_does_not_take_several_contexts_is_refused(override):
    runner.refuse(composed())
    with pytest.raises(UserError, match="fix: leave"):
        runner.refuse(composed(override))


def test_gspo_over_an_episode_is_refused():
    from recollect.train.settings import LossConfig

    loss.refuse(LossConfig(kind="gspo", scope="context"))
    with pytest.raises(UserError, match="turn or context"):
        loss.refuse(LossConfig(kind="gspo", scope="episode"))


def composed(*overrides: str) -> Any:
    """Return our configuration of verl as the entry point would."""
    from pathlib import Path

    with initialize_config_dir(str(Path(runner.__file__).parent), version_base=None):
        return compose("recollect", ["recollect.run=/run", *overrides])

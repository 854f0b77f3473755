"""What verl does to memory agents unless one takes care: one test for each known trap.

The numbers are those of the list in docs/cluster.md. Each test runs verl's own code, where it has
some, on what our loop makes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch
import transfer_queue as tq
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from transfer_queue import KVBatchMeta
from verl.experimental.agent_loop import agent_loop
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
from verl.protocol import DataProto
from verl.trainer.ppo.v1 import agent_loop_tq, utils
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from recollect.config.presets import preset
from recollect.config.roles import ModelsConfig
from recollect.config.train import TrainConfig
from recollect.engines.verl import runner
from recollect.engines.verl.trainer import loss
from recollect.engines.verl.trainer.trainer import MemoryTrainer, spread
from recollect.engines.verl.worker.archive import Taken
from recollect.engines.verl.worker.loop import MemoryLoop, outputs
from recollect.errors import UserError
from recollect.train.comparison import compare
from recollect.train.metrics import episode_metrics
from recollect.types import Episode, Failure
from tests.support.verl_rows import context, episode, task

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


class Queue:
    """A TransferQueue in this process: the rows of a batch, and what was put into them in turn."""

    def __init__(self, monkeypatch, groups: list[list[Episode]], stored) -> None:
        keys: list[str] = []
        fields: dict[str, list[torch.Tensor]] = {}
        for uid, group in enumerate(groups):
            for own in group:
                kept = stored(outputs(own, 100, [0]), uid=f"u{uid}", session_id=own.rollout)
                keys += kept["keys"]
                for name in ("response_mask", "rm_scores", "rollout_log_probs"):
                    fields.setdefault(name, []).extend(kept["fields"][name].unbind())
        nested = {
            name: torch.nested.as_nested_tensor([row.float() for row in rows], layout=torch.jagged)
            for name, rows in fields.items()
        }
        uids = NonTensorStack(*(key.split("_")[0] for key in keys))
        self.rows = TensorDict({**nested, "uid": uids}, batch_size=len(keys))
        self.batch = KVBatchMeta(keys=keys, tags=[{} for _ in keys], partition_id="train")
        self.puts: list[TensorDict] = []
        monkeypatch.setattr(tq, "kv_batch_get", self.get)
        monkeypatch.setattr(tq, "kv_batch_put", self.put)

    def get(self, keys, partition_id, select_fields):
        return self.rows.select(*select_fields, strict=False).clone()

    def put(self, keys, partition_id, fields):
        """Store, and name all that is stored by now: workers fetch what the batch names."""
        self.puts.append(fields)
        names = set().union(*(put.keys() for put in (self.rows, *self.puts)))
        return KVBatchMeta(
            keys=keys, tags=[{} for _ in keys], partition_id=partition_id, fields=sorted(names)
        )

    def advantages(self, put: int) -> list[float]:
        """The advantage of every row after that put, which is the same at all its tokens."""
        masks = self.rows["response_mask"].unbind()
        own = [a[m > 0] for a, m in zip(self.puts[put]["advantages"].unbind(), masks, strict=True)]
        assert all(torch.allclose(row, row[0].expand_as(row)) for row in own)
        return [float(row[0]) for row in own]


def advantages_of(monkeypatch, stored, advantage: str, estimator: str, group: list[Episode]):
    """Run our trainer's advantages over a batch; return verl's own and those it trains on."""
    queue, _ = compared(monkeypatch, stored, settings(advantage), estimator, group)
    return queue.advantages(0), queue.advantages(-1)


def compared(monkeypatch, stored, config: TrainConfig, estimator: str, group: list[Episode]):
    """Run our trainer's advantages over a batch; return the queue, and the batch as it goes on."""
    queue = Queue(monkeypatch, [group], stored)
    trainer = object.__new__(MemoryTrainer)
    trainer.settings = config
    bypass = "algorithm.rollout_correction.bypass_mode=true"
    trainer.config = composed(f"algorithm.adv_estimator={estimator}", bypass)
    trainer._submitted, trainer._parts = ["u0"], [list(range(len(queue.batch.keys)))]
    trainer._take = lambda uids: Taken([group], Counter())
    metrics: dict[str, Any] = {}
    batch = trainer._compute_advantage(queue.batch, metrics)
    assert metrics["episodes/total"] == len(group)
    return queue, batch


def test_what_our_loss_needs_reaches_the_workers(monkeypatch, stored):
    """verl's workers fetch the fields that a batch names, not all that are stored."""
    from dataclasses import replace

    config = settings("grpo")
    config = replace(config, loss=replace(config.loss, kind="cispo"))
    group = [three_contexts(rollout=i, reward=float(i)) for i in range(2)]
    queue, batch = compared(monkeypatch, stored, config, "grpo", group)
    assert {"advantages", loss.WEIGHTS, "rm_scores"} <= set(batch.fields)
    weights = [row.sum() for row in queue.puts[-1][loss.WEIGHTS].unbind()]
    assert sum(weights) == pytest.approx(1.0)


def test_4_what_is_trained_counts_episodes_where_verl_counts_contexts(monkeypatch, stored):
    group = [
        episode(*[context([1], [2, 3])] * n, rollout=i, reward=reward)
        for i, (reward, n) in enumerate([(1.0, 1), (0.0, 3), (0.25, 2)])
    ]
    theirs, ours = advantages_of(monkeypatch, stored, "rloo", "rloo", group)
    wanted = [0.875, *[-0.625] * 3, *[-0.25] * 2]  # each less the mean of the other two episodes
    assert ours == pytest.approx(wanted)
    assert theirs != pytest.approx(wanted, abs=0.05)


def test_5_what_is_trained_are_the_rewards_of_contexts(monkeypatch, stored):
    group = [
        episode(context([1], [2], reward=1.0), context([1], [3], reward=0.0), rollout=0, reward=0),
        episode(context([1], [2], reward=0.0), context([1], [3], reward=0.0), rollout=1, reward=0),
    ]
    theirs, ours = advantages_of(monkeypatch, stored, "grpo", "grpo", group)
    assert theirs == pytest.approx([0.0] * 4)  # of the last contexts' rewards, which are equal
    assert ours[0] == pytest.approx(ours[1] + 1.0)
    assert ours[0] > 0 > ours[2]


def test_7_the_loop_is_registered_once_and_made_anew_for_every_episode():
    entry = agent_loop._agent_loop_registry["recollect"]
    assert entry == {"_target_": "recollect.engines.verl.worker.loop.MemoryLoop"}
    assert composed().actor_rollout_ref.rollout.agent.agent_loop_config_path is None
    import importlib

    importlib.reload(importlib.import_module("recollect.engines.verl.worker.loop"))
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
    failed = three_contexts(reward=None, failure=Failure("endpoint", "Gone", "no"), rollout=1)
    assert outputs(failed, 100, [0]) == []
    assert stored([]) == {}  # verl takes that, and stores nothing
    pair = [three_contexts(reward=1.0), failed, three_contexts(reward=0.0, rollout=2)]
    got = spread(["u_0_0", "u_2_0"], ["u"], [pair], compare(settings("grpo"), [pair]))
    assert got == [0.5, -0.5]


def test_13_what_the_agent_failed_itself_is_in_its_group_with_the_lowest_reward(stored):
    fault = Failure("agent", "ValueError", "no", "agent")
    failed = episode(context([1], [2]), reward=None, failure=fault, rollout=1)
    made = outputs(failed, 100, [0])
    assert len(made) == 1 and made[0].reward_score == 0.0
    assert stored(made)  # verl computes no reward of its own for it
    group = [episode(context([1], [2]), reward=1.0), failed]
    got = spread(["u_0_0", "u_1_0"], ["u"], [group], compare(settings("grpo"), [group]))
    assert got == [0.5, -0.5]


def test_13_a_step_in_which_the_model_that_learns_is_silent_says_so(monkeypatch, tmp_path):
    done = {"is_prompt": True, "status": "finished", "global_steps": 3}
    monkeypatch.setattr(tq, "kv_list", lambda: {"train": {"a": dict(done)}})
    silent = episode(context([1], [3], role="answer", trainable=False), reward=1.0)
    trainer = object.__new__(MemoryTrainer)
    trainer.config = composed("data.train_batch_size=1")
    fixed = ModelsConfig(answer="http://localhost:1/v1")
    trainer.settings = replace(settings("grpo"), models=fixed)
    trainer.parameter_sync_step, trainer.global_steps = 1, 3
    trainer.run = tmp_path  # where nothing asks it to stop
    trainer.replay_buffer = ReplayBuffer("sync", trainer.config.trainer, None, "drop", {}, 0.01)
    trainer.prepare_step = lambda: trainer._submitted.extend(["a"])
    trainer._take = lambda uids: Taken([[silent]], Counter())
    with pytest.raises(UserError, match=r"in step 3 the model that learns .* said nothing"):
        trainer.step({}, {})


def test_13_a_step_of_failures_alone_says_why(monkeypatch, tmp_path):
    """verl: "no materializable trajectories". Its own buffer looks at what its queue holds."""
    done = {"is_prompt": True, "status": "finished", "global_steps": 3}
    monkeypatch.setattr(tq, "kv_list", lambda: {"train": {"a": dict(done), "b": dict(done)}})
    failed = [
        episode(rollout=i, reward=None, failure=Failure("endpoint", "Timeout", "no answer"))
        for i in range(2)
    ]
    trainer = object.__new__(MemoryTrainer)
    trainer.config = composed("data.train_batch_size=2")
    trainer.parameter_sync_step, trainer.global_steps = 1, 3
    trainer.run = tmp_path  # where nothing asks it to stop
    trainer.replay_buffer = ReplayBuffer("sync", trainer.config.trainer, None, "drop", {}, 0.01)
    trainer.prepare_step = lambda: trainer._submitted.extend(["a", "b"])
    trainer._take = lambda uids: Taken([failed, failed], Counter())
    with pytest.raises(UserError, match=r"all 4 episodes of step 3 failed.*no answer"):
        trainer.step({}, {})
    trainer._take = lambda uids: Taken([[], []], Counter())  # nothing came: verl's own words
    with pytest.raises(RuntimeError, match="no materializable"):
        trainer.step({}, {})


@pytest.mark.parametrize(
    "override",
    ["trainer.use_v1=false", "trainer.v1.trainer_mode=colocate_async", "distillation.enabled=true"],
)
def test_14_and_15_what_does_not_take_several_contexts_is_refused(override):
    runner.refuse(composed())
    with pytest.raises(UserError, match="fix: leave"):
        runner.refuse(composed(override))


def test_gspo_over_an_episode_is_refused():
    from recollect.config.engine import LossConfig

    loss.refuse(LossConfig(kind="gspo", scope="context"))
    with pytest.raises(UserError, match="turn or context"):
        loss.refuse(LossConfig(kind="gspo", scope="episode"))


def composed(*overrides: str) -> Any:
    """Return our configuration of verl as the entry point would."""
    from pathlib import Path

    with initialize_config_dir(str(Path(runner.__file__).parent), version_base=None):
        return compose("recollect", ["recollect.run=/run", *overrides])

"""Flags of the published scripts: what they decide here, and what is refused with a new name."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.agents.bank import BankAgent
from recollect.agents.fold import FoldAgent
from recollect.config.engine import LoraConfig
from recollect.config.presets import preset
from recollect.engines.verl.launch.flags import SHARED, adopt
from recollect.engines.verl.launch.start import Launch, plan_launch, write_folder
from recollect.engines.verl.run.folder import RunFolder
from recollect.errors import UserError
from recollect.tasks.documents.memagent import MemAgentRows, write_rows
from recollect.types import Question, Task
from tests.support.memagent_script import FLAGS


def test_memagents_script_is_taken_as_it_stands():
    config = adopt(preset("bank"), FLAGS).config  # even over a preset of something else
    assert config.agent == FoldAgent(chunk_size=5000, order="memory_first", max_chunks=8)
    assert config.advantage == "grpo"
    assert (config.rollout.tasks, config.rollout.n, config.updates_per_step) == (32, 16, 4)
    assert (config.val.n, config.val.temperature, config.val.top_p) == (4, 1.0, 0.7)
    assert (config.save_freq, config.test_freq) == (10, 5)
    assert config.trackers == ("wandb",) and config.name == "memory_agent_0.5b"
    assert (config.optim.lr, config.optim.offload) == (1e-6, True)
    assert (config.loss.kl_coef, config.loss.kl, config.loss.kl_in) == (0.001, "k3", "loss")
    assert (config.loss.clip_high, config.loss.entropy_coef) == (0.2, 0)
    assert config.model.path == "Qwen/Qwen2.5-0.5B-Instruct" and config.model.recompute == 1.0
    assert isinstance(config.tasks, MemAgentRows)


def test_what_verl_never_had_does_not_reach_it():
    adopted = adopt(preset("hotpotqa"), FLAGS)
    gone = ("recurrent", "grpo_use_adv", "context_key", "truncation", "reward_manager", "_files")
    assert not [text for text in adopted.overrides if any(word in text for word in gone)]
    kept = [text for text in FLAGS if text in adopted.overrides]
    assert len(kept) == len(FLAGS) - 13  # thirteen are ours alone
    assert "actor_rollout_ref.actor.optim.lr_warmup_steps=20" in adopted.overrides
    assert adopted.inputs == {
        "train": (Path("/data/hotpotqa_train_32k.parquet"),),
        "test": (Path("/data/hotpotqa_dev.parquet"),),
    }
    assert any("total_epochs" in note for note in adopted.notes)


def test_the_window_that_is_given_is_the_servers():
    plan = plan_launch(preset("hotpotqa"), FLAGS)
    assert plan.keys["actor_rollout_ref.rollout.max_model_len"] == 8192 + 1024
    plan = plan_launch(preset("hotpotqa"), [*FLAGS, "data.max_prompt_length=6000"])
    assert "actor_rollout_ref.rollout.max_model_len=7024" in plan.arguments


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("recurrent.enable=revisit", "names no agent"),
        ("recurrent.memory.path=recurrent/impls/memory.py", "preset"),
        ("recurrent.memory.config.chunks=3", "chunk_size"),
        ("data.truncation=left", "MemoryDataset only support center truncation"),
        ("data.context_key=text", "name it context"),
        ("data.shuffle=True", "--seed"),
        ("reward_model.reward_manager=naive", "--reward.metric"),
        ("custom_reward_function.path=a.py", "--reward.metric"),
        ("rollout.n=8", "actor_rollout_ref.rollout.n"),
        ("optim.lr=1", "actor_rollout_ref.actor.optim.lr"),
        ("sampling.n=8", "before --"),
        ("algorithm.adv_estimator=remax", "rloo"),
        ("trainer.use_v1=False", "trainer.use_v1"),
        ("model_engine=megatron", "FSDP"),
        ("algorithm.filter_groups.enable=True", "--rollout.tasks"),
        ("trainer.v1.sampler.sync_refill_failed_groups=True", "leave it out"),
        ("algorithm.kl_ctrl.type=adaptive", "--loss.kl-coef"),
        ("trainer.resume_mode=disable", "--resume"),
        ("trainer.resume_from_path=/old/global_step_3", "--resume"),
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2", "ppo_max_token_len_per_gpu"),
        ("actor_rollout_ref.actor.kl_loss_type=abs", "low_var_kl"),
        ("data.train_files=a_train.parquet", "go together"),
    ],
)
def test_what_lives_elsewhere_is_refused_with_the_new_name(flag, message):
    with pytest.raises(UserError) as refused:
        adopt(preset("hotpotqa"), [flag])
    assert message in str(refused.value)


def test_one_file_cannot_be_trained_on_and_held_out():
    with pytest.raises(UserError, match=r"a\.parquet is named in data\.train_files and in"):
        adopt(preset("hotpotqa"), ["data.train_files=[a.parquet]", "data.val_files=./a.parquet"])


STAGE = "actor_rollout_ref.rollout"


def test_two_stage_keys_route_the_roles():
    flags = [
        f"+{STAGE}.agent_name_override=tool_mem_agent_twostage",
        f"+{STAGE}.training_stage=memory",
        f"+{STAGE}.fixed_model_api=http://localhost:8000/v1",
    ]
    adopted = adopt(preset("hotpotqa"), flags)
    assert isinstance(adopted.config.agent, BankAgent)
    assert adopted.config.models.learning == ("memory",)
    assert adopted.config.models.answer == "http://localhost:8000/v1"
    assert not adopted.overrides


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["training_stage=rag"], "training_stage must be 'memory' or 'qa', got: rag"),
        (["training_stage=qa"], "fixed_model_api is required for two-stage training"),
        (["agent_name_override=x"], "Agent loop x not registered, registered agent loops: "),
    ],
)
def test_two_stage_mistakes_have_the_references_texts(flags, text):
    with pytest.raises(UserError) as refused:
        adopt(preset("bank"), [f"{STAGE}.{flag}" for flag in flags])
    assert text in str(refused.value)


def test_grpo_with_and_without_deviation_and_other_estimators():
    def advantage(*flags: str) -> str:
        return adopt(preset("bank"), flags).config.advantage

    assert advantage("algorithm.grpo_use_adv=True") == "grpo_std"
    assert advantage("algorithm.grpo_use_adv=False") == "grpo"
    assert advantage("algorithm.norm_adv_by_std_in_grpo=False") == "grpo"
    assert advantage("algorithm.adv_estimator=rloo") == "rloo"
    assert advantage("algorithm.adv_estimator=grpo") == "grpo_std"  # as the preset has it
    rloo = replace(preset("bank"), advantage="rloo")
    assert adopt(rloo, ["algorithm.adv_estimator=grpo"]).config.advantage == "grpo"


def test_a_reference_can_be_switched_off_and_on():
    off = adopt(preset("bank"), ["actor_rollout_ref.actor.use_kl_loss=False"]).config
    assert off.loss.kl_coef == 0
    on = adopt(off, ["actor_rollout_ref.actor.use_kl_loss=True"]).config
    assert on.loss.kl_coef == 0.001


def test_a_kl_in_the_reward_is_ours_to_charge():
    def loss(*flags: str, start=None):
        found = adopt(start or preset("bank"), [f"algorithm.{flag}" for flag in flags]).config.loss
        return found.kl_in, found.kl_coef, found.kl

    own = preset("bank").loss
    assert loss() == loss("kl_ctrl.kl_coef=0.5") == (own.kl_in, own.kl_coef, own.kl)
    given = loss("use_kl_in_reward=True", "kl_ctrl.kl_coef=0.02", "kl_penalty=kl")
    assert given == ("reward", 0.02, "k1")
    none = replace(preset("bank"), loss=replace(own, kl_coef=0.0))
    assert loss("use_kl_in_reward=True", start=none)[:2] == ("reward", 0.001)
    there = replace(preset("bank"), loss=replace(own, kl_in="reward", kl_coef=0.1))
    assert loss("use_kl_in_reward=False", start=there)[1] == 0
    assert loss("kl_ctrl.kl_coef=0.3", start=there)[1] == 0.3
    with pytest.raises(UserError, match="not into both"):
        adopt(
            preset("bank"),
            ["actor_rollout_ref.actor.use_kl_loss=True", "algorithm.use_kl_in_reward=True"],
        )


def test_never_saving_is_verls_affair():
    config = adopt(preset("bank"), ["trainer.save_freq=-1"])
    assert config.config.save_freq == preset("bank").save_freq
    assert config.overrides == ("trainer.save_freq=-1",)


@pytest.mark.parametrize("theirs", SHARED)
def test_every_shared_setting_says_the_same_twice(theirs):
    """Give our value to verl's key: our settings must come out as they were."""
    config = preset("bank")
    lora = replace(
        config.model, lora=LoraConfig(rank=8)
    )  # the keys of LoRA are written with it alone
    plan = plan_launch(replace(config, model=lora), [])
    value = plan.keys[theirs]
    adopted = adopt(plan.config, [f"{theirs}={value}"])
    assert adopted.config == plan.config


def write_facts(path: Path, first: int, n: int = 4) -> str:
    """Write rows about facts from a number on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = [
        Task(
            str(i),
            [f"Document {d + 1}:\nfact {i} of {d}" for d in range(3)],
            (Question(f"fact {i}?", (f"{i}",)),),
            "hotpotqa",
        )
        for i in range(first, first + n)
    ]
    write_rows(path, made)
    return str(path)


def facts_of(tmp_path: Path, train: str, val: str) -> tuple[set[int], set[int], Launch]:
    """Return the facts that a run would train on and hold out, and its plan."""
    base = replace(preset("hotpotqa"), folder=tmp_path / "runs", steps=2)
    flags = [f"data.train_files={train}", f"data.val_files={val}", "data.train_batch_size=2"]
    plan = plan_launch(replace(base, val=replace(base.val, tasks=4)), flags)
    write_folder(plan)
    run = RunFolder(plan.run)
    trained, held_out = (
        {int(task.questions[0].answers[0]) for task in run.tasks(split)}
        for split in ("train", "test")
    )
    return trained, held_out, plan


def test_memagents_files_become_the_tasks(tmp_path):
    """From its Parquet files to the store that workers map."""
    files = [write_facts(tmp_path / f"rows_{s}.parquet", n) for s, n in (("train", 0), ("dev", 9))]
    trained, held_out, plan = facts_of(tmp_path, *files)
    assert trained == {0, 1, 2, 3} and held_out == {9, 10, 11, 12}
    task = RunFolder(plan.run).tasks("test")[0]
    assert task.chunks[2] == f"Document 3:\nfact {task.questions[0].answers[0]} of 2"
    assert str(tmp_path / "rows") not in "".join(plan.arguments)


@pytest.mark.parametrize(
    ("train", "val"),
    [("mine.parquet", "train_later.parquet"), ("dev.parquet", "train.parquet")],
)
def test_the_keys_decide_the_split_and_not_the_names(tmp_path, train, val):
    files = write_facts(tmp_path / train, 0), write_facts(tmp_path / val, 9)
    assert facts_of(tmp_path, *files)[:2] == ({0, 1, 2, 3}, {9, 10, 11, 12})


def test_a_training_row_that_is_held_out_too_is_left_out_and_said(tmp_path):
    files = write_facts(tmp_path / "train.parquet", 0, 8), write_facts(tmp_path / "dev.parquet", 6)
    trained, held_out, plan = facts_of(tmp_path, *files)
    assert trained <= {0, 1, 2, 3, 4, 5} and held_out == {6, 7, 8, 9}
    shutil.rmtree(plan.config.tasks.folder)
    assert write_folder(plan) == ["left out of training: 2 rows, question held out too"]


def test_data_made_from_files_are_known_by_what_the_files_hold(tmp_path):
    """One name in two folders, and one file changed under its name, size and time."""
    one, other = (
        (
            write_facts(tmp_path / f"{n}/train.parquet", n),
            write_facts(tmp_path / f"{n}/dev.parquet", 90),
        )
        for n in (10, 20)
    )
    assert facts_of(tmp_path, *one)[0] == {10, 11, 12, 13}
    trained, _, plan = facts_of(tmp_path, *other)
    assert trained == {20, 21, 22, 23}
    path, changed = Path(other[0]), tmp_path / "changed.parquet"
    write_facts(changed, 30)
    size, times = path.stat().st_size, path.stat()
    path.write_bytes(changed.read_bytes())
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_size == size  # as long as before, and as old
    again, _, later = facts_of(tmp_path, *other)
    assert again == {30, 31, 32, 33}
    assert later.config.tasks.folder != plan.config.tasks.folder


def test_a_run_under_way_is_left_alone(tmp_path):
    from recollect import files as disk

    base = preset("demo")
    base = replace(base, folder=tmp_path, steps=1, val=replace(base.val, tasks=1))
    plan = plan_launch(base, [])
    write_folder(plan)
    with disk.lock(plan.run), pytest.raises(UserError, match="in use"):
        write_folder(plan)

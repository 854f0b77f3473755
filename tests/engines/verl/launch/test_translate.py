"""Our settings in verl's words. Whether verl knows these words is asked in tests/verl."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from recollect.agents.base import lengths_of as lengths
from recollect.agents.callback import CallbackAgent
from recollect.agents.fold import FoldAgent, FoldPrompts
from recollect.agents.gated import GatedAgent
from recollect.agents.parallel import ParallelAgent
from recollect.config.engine import LoraConfig, LossConfig, OptimConfig
from recollect.config.presets import PRESETS, preset
from recollect.config.roles import ModelsConfig
from recollect.config.rollout import LocalConfig, RolloutConfig
from recollect.engines.verl.launch.translate import (
    merged,
    name_of,
    read,
    resolved,
    translate,
    written,
)
from recollect.errors import UserError

RUN = Path("/runs/one")
ACTOR = "actor_rollout_ref.actor"


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_translates(name):
    config = preset(name)
    if name == "memagent_published":  # its prompts are in a file that is not here
        config = replace(config, agent=replace(config.agent, prompts=FoldPrompts()))
    keys = translate(config, RUN, window=32768)
    assert keys["data.train_batch_size"] == config.rollout.tasks
    assert keys["actor_rollout_ref.rollout.n"] == config.rollout.n
    assert keys["recollect.run"] == str(RUN)
    assert keys["data.shuffle"] is False
    # A row longer than a micro-batch could never be trained.
    longest = keys["actor_rollout_ref.rollout.max_model_len"]
    assert keys[f"{ACTOR}.ppo_max_token_len_per_gpu"] >= longest


def test_memagents_window():
    room = lengths(FoldAgent(), window=32768)
    assert (room.prompt, room.response, room.context) == (8192, 1024, 9216)
    room = lengths(FoldAgent(chunk_size=2000), window=4096)  # a small window bounds it
    assert room.context == 4096 and room.prompt == 4096 - 1024
    with pytest.raises(UserError, match="do not fit"):
        translate(preset("hotpotqa"), RUN, window=4096)


def test_the_warm_up_counts_batches():
    config = replace(preset("bank"), optim=OptimConfig(warmup_steps=10), updates_per_step=4)
    assert translate(config, RUN)[f"{ACTOR}.optim.lr_warmup_steps"] == 3


def test_kl_goes_into_the_loss_or_the_reward_or_nowhere():
    def both(loss: LossConfig) -> tuple[bool, bool]:
        keys = translate(replace(preset("hotpotqa"), loss=loss), RUN)
        return keys[f"{ACTOR}.use_kl_loss"], keys["algorithm.use_kl_in_reward"]

    assert both(LossConfig(kl_coef=0.1)) == (True, False)
    assert both(LossConfig(kl_coef=0.1, kl_in="reward")) == (False, True)
    assert both(LossConfig(kl_coef=0.0)) == (False, False)


def test_tis_and_what_ratios_are_against():
    keys = translate(replace(preset("hotpotqa"), loss=LossConfig(tis_cap=2.0)), RUN)
    assert keys["algorithm.rollout_correction.bypass_mode"] is False
    assert keys["algorithm.rollout_correction.rollout_is"] == "token"
    assert keys["algorithm.rollout_correction.rollout_is_threshold"] == 2.0
    keys = translate(preset("hotpotqa"), RUN)
    assert keys["algorithm.rollout_correction.bypass_mode"] is True
    again = translate(replace(preset("hotpotqa"), epochs=2), RUN)
    assert again["algorithm.rollout_correction.bypass_mode"] is False
    assert again["algorithm.rollout_correction.rollout_is"] is None


def test_adapters():
    config = preset("hotpotqa")
    config = replace(config, model=replace(config.model, lora=LoraConfig(rank=8)))
    assert translate(config, RUN)["actor_rollout_ref.model.lora_rank"] == 8


def test_what_verl_cannot_do_is_refused_by_our_name(tmp_path):
    def refused(**changes) -> str:
        with pytest.raises(UserError) as error:
            translate(replace(preset("bank"), **changes), RUN)
        return str(error.value)

    assert "embedded" in refused(advantage="gae")
    assert "--rollout.ahead" in refused(rollout=RolloutConfig(ahead=1))
    assert "rollout.name=vllm" in refused(rollout=RolloutConfig(sampler="vllm"))
    assert "--rollout.refills 0" in refused(rollout=RolloutConfig(refills=1))
    assert "--local.n" in refused(local=LocalConfig(n=2))
    assert "--loss.scope" in refused(loss=LossConfig(kind="gspo", scope="episode"))
    assert "--models.answer" in refused(models=ModelsConfig(answer=str(tmp_path)))
    folds = replace(preset("hotpotqa"), loss=LossConfig(kind="gspo", scope="turn"))
    assert translate(folds, RUN)[f"{ACTOR}.policy_loss.loss_mode"] == "gspo"


def test_resuming():
    def keys(resume: str) -> dict:
        return translate(replace(preset("bank"), resume=resume), RUN)

    assert keys("auto")["trainer.resume_mode"] == "auto"
    assert keys("never")["trainer.resume_mode"] == "disable"
    assert keys("/old/global_step_3")["trainer.resume_from_path"] == "/old/global_step_3"


def test_the_users_settings_win():
    keys = {"a.b": 1, "c": [1, 2], "d": None}
    assert merged(keys, ["++a.b=3", "~d", "e=x"]) == ["c=[1,2]", "++a.b=3", "~d", "e=x"]
    assert resolved(keys, ["++a.b=3", "e=x"]) == {"a.b": 3, "c": [1, 2], "d": None, "e": "x"}
    assert name_of("+actor@x.y=1") == "actor"
    with pytest.raises(UserError, match="key=value"):
        merged(keys, ["--steps"])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1e-06, "1e-06"),
        ("a/b-c_d.e", "a/b-c_d.e"),
        ("12", "'12'"),
        ("true", "'true'"),
        ("two words", "'two words'"),
        ("it's", "'it\\'s'"),
        ("", "''"),
        (["console", "wandb"], "[console,wandb]"),
        ({"eps": 1e-5}, "{eps:1e-05}"),
    ],
)
def test_values_in_hydras_grammar(value, text):
    assert written(value) == text


def test_values_are_read_back():
    for value in (None, True, False, 3, 0.5, "word", ["a", "b"], []):
        assert read(written(value)) == value
    assert read("['console','wandb']") == ["console", "wandb"]


def test_room_for_a_second_memory_and_for_notes():
    assert lengths(CallbackAgent(), None).prompt == 9216  # 5000 + 2 x 1024 + 2048
    assert lengths(GatedAgent(), None) == lengths(FoldAgent(), None)
    many = ParallelAgent(fan_in=32)
    assert lengths(many, None).prompt == 12288  # 32 x (256 + 8) + 1024 + 2048, rounded up
    assert lengths(ParallelAgent(), None) == lengths(FoldAgent(), None)

"""Every key and value we write is one that the installed verl knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("verl")

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from recollect.commands.arguments import read_config
from recollect.config.engine import LoraConfig, LossConfig, ModelConfig, OptimConfig
from recollect.config.presets import preset
from recollect.engines.verl.launch.flags import FREQUENCIES, SHARED, adopt
from recollect.engines.verl.launch.options import split_engine
from recollect.engines.verl.launch.start import check_keys, plan_launch
from recollect.engines.verl.launch.translate import RUN, merged, translate, written
from recollect.errors import UserError
from tests.commands.test_recipes import SCRIPTS, command_of
from tests.support.memagent_script import FLAGS


@pytest.fixture(scope="module")
def config_folder() -> str:
    import verl.trainer

    return str(Path(verl.trainer.__file__).parent / "config")


def composed(folder: str, overrides: list[str]):
    with initialize_config_dir(folder, version_base=None):
        return compose("ppo_trainer", overrides)


def everything():
    """Settings that make the translation write every key it can."""
    return replace(
        preset("hotpotqa"),
        model=ModelConfig(path="m", lora=LoraConfig(rank=4)),
        loss=LossConfig(tis_cap=2.0, aggregate="constant_length"),
        optim=OptimConfig(eps=1e-6),
        resume="/old/global_step_1",
    )


@pytest.mark.parametrize("name", ["hotpotqa", "bank", "locomo", "everything"])
def test_verl_takes_every_key(config_folder, name):
    config = everything() if name == "everything" else preset(name)
    keys = translate(config, Path("/a folder/with 'marks'=x"), 32768)
    # hydra refuses a key that is not in verl's configuration.
    found = composed(config_folder, [o for o in merged(keys, []) if not o.startswith(RUN)])
    for key, value in keys.items():
        if key != RUN:
            got = OmegaConf.select(found, key)
            got = OmegaConf.to_container(got) if OmegaConf.is_config(got) else got
            assert got == value, key


def test_verl_refuses_a_key_that_it_does_not_know(config_folder):
    with pytest.raises(Exception, match="nope"):
        composed(config_folder, ["trainer.nope=1"])


def test_the_whole_command_is_checked_before_anything_starts():
    """As the dry run does: the configuration of the installed verl, with every key of ours."""
    check_keys(plan_launch(preset("hotpotqa"), FLAGS))
    for wrong in ("trainer.nope=1", "actor_rollout_ref.actor.nope.deeper=2", "data.nope=[1]"):
        with pytest.raises(UserError, match="the installed verl refuses the configuration") as said:
            check_keys(plan_launch(preset("hotpotqa"), [wrong]))
        assert "nope" in said.value.what and "+KEY=VALUE" in said.value.fix
    check_keys(plan_launch(preset("hotpotqa"), ["+trainer.nope=1"]))  # what the fix says


def test_memagents_script_becomes_a_command_for_verl(config_folder):
    plan = plan_launch(preset("hotpotqa"), FLAGS)
    found = composed(config_folder, [o for o in plan.arguments if not o.startswith(RUN)])
    assert found.data.train_files == str(plan.run / "train.parquet")
    assert found.actor_rollout_ref.rollout.val_kwargs.n == 4
    assert found.trainer.n_gpus_per_node == 4
    assert found.algorithm.adv_estimator == "grpo"
    assert found.algorithm.norm_adv_by_std_in_grpo is False


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_every_recipe_is_a_command_for_verl(config_folder, script, tmp_path):
    options, args = split_engine(command_of(script, 4, tmp_path)[1:])
    plan = plan_launch(read_config(args, "train", ""), options.overrides)
    found = composed(config_folder, [o for o in plan.arguments if not o.startswith(RUN)])
    assert found.trainer.n_gpus_per_node in (1, 4, 8)
    assert found.data.train_batch_size % found.actor_rollout_ref.actor.ppo_mini_batch_size == 0


def test_what_we_read_from_overrides_is_verls(config_folder):
    composed(config_folder, [f"{key}=1" for key in (*SHARED, *FREQUENCIES)])  # or it refuses


def test_strings_survive_hydra(config_folder):
    texts = ("it's", "a=b", "two words", "12", "null", "x\\y", "{a}", "[b]", "${c}", "a,b", "")
    found = composed(config_folder, [f"+s{i}={written(text)}" for i, text in enumerate(texts)])
    raw = OmegaConf.to_container(found, resolve=False)
    assert [raw[f"s{i}"] for i in range(len(texts))] == list(texts)


def test_verls_dataclasses_accept_the_actor(config_folder):
    """Beyond names: verl's own checks of values."""
    from verl.utils.config import omega_conf_to_dataclass

    keys = translate(adopt(preset("hotpotqa"), []).config, Path("/r"), 32768)
    found = composed(config_folder, [o for o in merged(keys, []) if not o.startswith(RUN)])
    actor = omega_conf_to_dataclass(found.actor_rollout_ref.actor)
    actor.validate(8, found.data.train_batch_size, found.actor_rollout_ref.model)
    assert actor.policy_loss.loss_mode == "vanilla"
    omega_conf_to_dataclass(found.algorithm)
    omega_conf_to_dataclass(found.actor_rollout_ref.rollout)

"""From our settings to verl's: one flat table of its configuration keys. Pure, needs no verl.

Whatever is given after `--` is verl's own language and wins. What verl cannot do is refused here,
by the name of our setting, before a cluster is asked for anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.agents.base import check_window, lengths_of
from recollect.agents.estimates import Lengths
from recollect.config.stored import own_sources
from recollect.config.train import TrainConfig
from recollect.errors import UserError

Keys = dict[str, Any]

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
REF = "actor_rollout_ref.ref"
MODEL = "actor_rollout_ref.model"
RUN = "recollect.run"
"""Our own key: the folder of the run."""

LOSSES = {"ppo": "vanilla", "gspo": "gspo", "cispo": "cispo"}
DIVERGENCES = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}
WEIGHINGS = {
    "token_mean": "token-mean",
    "sequence_mean_token_sum": "seq-mean-token-sum",
    "sequence_mean_token_mean": "seq-mean-token-mean",
    "constant_length": "seq-mean-token-sum-norm",
}
"""What verl calls a weighing; one that it does not have is computed by our own loss inside it."""
_PLAIN = re.compile(r"[\w./:@+-]+")


def translate(config: TrainConfig, run: Path, window: int | None = None) -> Keys:
    """Return verl's keys for our settings; `window` is what the model's context holds, if known."""
    refuse(config)
    if window is not None:
        check_window(config.agent, window)
    room = lengths_of(config.agent, window)
    return {
        **_data(config, run, room),
        **_model(config),
        **_actor(config, room),
        **_algorithm(config),
        **_rollout(config, room),
        **_trainer(config, run),
        RUN: str(run),
    }


def refuse(config: TrainConfig) -> None:
    """Refuse what only the embedded engine does."""
    for source in own_sources(config):
        if source.module == "__main__":
            raise UserError(
                "a part of the run is defined in a script or a notebook, which a cluster's workers"
                " cannot import",
                "define it in a file of its own and name it as module:Name",
            )
    for role in config.models.fixed:
        if not config.models.is_served(role):
            raise UserError(
                f"models.{role} is a folder, which every worker of a cluster would load for itself",
                f"serve it (vllm serve FOLDER, or recollect serve FOLDER) and set --models.{role}"
                " to its address",
            )
    if config.advantage == "gae":
        raise UserError(
            "only the embedded engine has the critic of gae",
            "set --advantage, or leave out --engine",
        )
    if config.local.n:
        raise UserError(
            "only the embedded engine runs episodes again from the middle", "set --local.n 0"
        )
    if config.rollout.ahead:
        raise UserError(
            "on a cluster sampling and training take turns on the same GPUs",
            "set --rollout.ahead 0",
        )
    if config.rollout.sampler != "embedded" or config.rollout.sleep:
        raise UserError(
            "rollout.sampler is the embedded engine's; on a cluster vLLM samples anyway",
            "leave it out, and choose with -- actor_rollout_ref.rollout.name=vllm",
        )
    if config.rollout.refills:
        raise UserError(
            "only the embedded engine replaces groups without differences: verl would draw without"
            " end, and from the tasks of later steps",
            "set --rollout.refills 0 and a larger --rollout.tasks: such groups teach nothing",
        )
    if config.loss.kind == "gspo" and config.loss.scope == "episode":
        raise UserError(
            "an episode's contexts are spread over processes, which gspo would have to compare",
            "set --loss.scope to turn or context",
        )


def _data(config: TrainConfig, run: Path, room: Lengths) -> Keys:
    return {
        "data.train_files": str(run / "train.parquet"),
        "data.val_files": str(run / "test.parquet"),
        "data.train_batch_size": config.rollout.tasks,
        # The rows stand in the order in which the embedded engine draws its tasks.
        "data.shuffle": False,
        "data.seed": config.seed,
        "data.max_prompt_length": room.prompt,
        "data.max_response_length": room.response,
        # Rows are a few bytes each: reading them ahead in eight processes saves nothing.
        "data.dataloader_num_workers": 0,
    }


def _model(config: TrainConfig) -> Keys:
    lora = config.model.lora
    keys: Keys = {
        f"{MODEL}.path": config.model.path,
        f"{MODEL}.enable_gradient_checkpointing": config.model.recompute > 0,
        f"{MODEL}.use_remove_padding": True,
    }
    if lora.rank:
        keys |= {
            f"{MODEL}.lora_rank": lora.rank,
            f"{MODEL}.lora_alpha": lora.alpha,
            f"{MODEL}.target_modules": lora.targets,
        }
    return keys


def _actor(config: TrainConfig, room: Lengths) -> Keys:
    loss, optim = config.loss, config.optim
    budget = max(config.token_budget, room.context)
    in_loss = bool(loss.kl_coef) and loss.kl_in == "loss"
    keys: Keys = {
        f"{ACTOR}.strategy": "fsdp2",
        f"{ACTOR}.ppo_mini_batch_size": max(1, config.rollout.tasks // config.updates_per_step),
        # Contexts differ in length and number: only micro-batches by tokens fit any of them.
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.ppo_max_token_len_per_gpu": budget,
        f"{REF}.log_prob_max_token_len_per_gpu": 2 * budget,
        f"{ROLLOUT}.log_prob_max_token_len_per_gpu": 2 * budget,
        f"{ACTOR}.policy_loss.loss_mode": LOSSES[loss.kind],
        f"{ACTOR}.clip_ratio": loss.clip_low,
        f"{ACTOR}.clip_ratio_low": loss.clip_low,
        f"{ACTOR}.clip_ratio_high": loss.clip_high,
        f"{ACTOR}.clip_ratio_c": loss.dual_clip,
        f"{ACTOR}.loss_agg_mode": WEIGHINGS.get(loss.aggregate, "token-mean"),
        f"{ACTOR}.entropy_coeff": loss.entropy_coef,
        f"{ACTOR}.use_kl_loss": in_loss,
        f"{ACTOR}.kl_loss_coef": loss.kl_coef,
        f"{ACTOR}.kl_loss_type": DIVERGENCES[loss.kl],
        f"{ACTOR}.optim.lr": optim.lr,
        # Ours counts optimiser steps, verl's the batches that they are made of.
        f"{ACTOR}.optim.lr_warmup_steps": -(
            -optim.warmup_steps // (config.updates_per_step * config.epochs)
        ),
        f"{ACTOR}.ppo_epochs": config.epochs,
        # A cosine from 1 to 1: verl's constant schedule begins with a batch at a rate of 0.
        f"{ACTOR}.optim.lr_scheduler_type": "cosine",
        f"{ACTOR}.optim.min_lr_ratio": 1.0,
        f"{ACTOR}.optim.zero_indexed_step": False,
        f"{ACTOR}.optim.betas": list(optim.betas),
        f"{ACTOR}.optim.weight_decay": optim.weight_decay,
        f"{ACTOR}.optim.clip_grad": optim.clip_norm,
        f"{ACTOR}.fsdp_config.optimizer_offload": optim.offload,
    }
    if loss.aggregate == "constant_length":
        keys[f"{ACTOR}.loss_scale_factor"] = loss.length
    if optim.eps != 1e-8:
        keys[f"{ACTOR}.optim.override_optimizer_config"] = {"eps": optim.eps}
    return keys


def _algorithm(config: TrainConfig) -> Keys:
    loss = config.loss
    keys: Keys = {
        # verl's name for "no critic": what is compared with what is decided by `advantage`.
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": config.advantage == "grpo_std",
        "algorithm.use_kl_in_reward": bool(loss.kl_coef) and loss.kl_in == "reward",
        "algorithm.kl_penalty": DIVERGENCES[loss.kl],
        "algorithm.kl_ctrl.kl_coef": loss.kl_coef,
        # Ratios are against the sampler's probabilities; with TIS, and where a batch is used more
        # than once, against the trainer's own.
        "algorithm.rollout_correction.bypass_mode": not (loss.tis_cap or config.epochs > 1),
        "algorithm.rollout_correction.rollout_is": "token" if loss.tis_cap else None,
    }
    if loss.tis_cap:
        keys["algorithm.rollout_correction.rollout_is_threshold"] = loss.tis_cap
    return keys


def _rollout(config: TrainConfig, room: Lengths) -> Keys:
    rollout, val = config.rollout, config.val
    return {
        f"{ROLLOUT}.name": "vllm",
        f"{ROLLOUT}.n": rollout.n,
        f"{ROLLOUT}.temperature": rollout.temperature,
        f"{ROLLOUT}.top_p": rollout.top_p,
        f"{ROLLOUT}.seed": config.seed,
        f"{ROLLOUT}.max_model_len": room.context,
        f"{ROLLOUT}.tensor_model_parallel_size": 1,
        f"{ROLLOUT}.gpu_memory_utilization": 0.6,
        f"{ROLLOUT}.max_num_batched_tokens": max(16384, room.context),
        f"{ROLLOUT}.calculate_log_probs": True,
        f"{ROLLOUT}.val_kwargs.n": val.n,
        f"{ROLLOUT}.val_kwargs.do_sample": val.temperature > 0,
        f"{ROLLOUT}.val_kwargs.temperature": val.temperature,
        f"{ROLLOUT}.val_kwargs.top_p": val.top_p,
    }


def _trainer(config: TrainConfig, run: Path) -> Keys:
    resume: Keys = {"trainer.resume_mode": "auto"}
    if config.resume == "never":
        resume = {"trainer.resume_mode": "disable"}
    elif config.resume != "auto":
        resume = {
            "trainer.resume_mode": "resume_path",
            "trainer.resume_from_path": config.resume,
        }
    return {
        "trainer.project_name": config.tracking.project,
        "trainer.experiment_name": config.tracking.run or config.name,
        "trainer.logger": ["console", *config.trackers],
        "trainer.total_epochs": 1,
        "trainer.total_training_steps": config.steps,
        "trainer.save_freq": config.save_freq,
        "trainer.test_freq": config.test_freq,
        "trainer.val_before_train": config.val.before_training,
        "trainer.default_local_dir": str(run / "checkpoints"),
        "trainer.max_actor_ckpt_to_keep": config.keep,
        **resume,
    }


def name_of(override: str) -> str:
    """Return the key of an override as hydra writes them: `++a.b=1` is of `a.b`."""
    return override.partition("=")[0].lstrip("+~").partition("@")[0].strip()


def merged(keys: Keys, overrides: Sequence[str]) -> list[str]:
    """Write keys as overrides for hydra, followed by the user's, which take the place of ours."""
    for override in overrides:
        if "=" not in override and not override.startswith("~"):
            raise UserError(
                f"{override!r} after -- is not of the form key=value",
                "write settings of verl such as trainer.nnodes=4",
            )
    theirs = {name_of(override) for override in overrides}
    ours = [f"{key}={written(value)}" for key, value in keys.items() if key not in theirs]
    return [*ours, *overrides]


def resolved(keys: Keys, overrides: Sequence[str]) -> Keys:
    """Return all keys with the user's laid over them, their values read as YAML does."""
    given = {name_of(o): read(o.partition("=")[2]) for o in overrides if "=" in o}
    return keys | given


def written(value: Any) -> str:
    """Write a value in hydra's grammar."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(written, value)) + "]"
    text = str(value)
    if _PLAIN.fullmatch(text) and read(text) == text:
        return text
    escaped = text.replace("\\'", "\\\\'").replace("'", "\\'")
    return f"'{escaped}'"


def read(text: str) -> Any:
    """Read a value as hydra would, as far as numbers, words and flat lists go."""
    words = {"null": None, "none": None, "true": True, "false": False}
    stripped = text.strip()
    if stripped.lower() in words:
        return words[stripped.lower()]
    if stripped[:1] in "'\"" and stripped[-1:] == stripped[:1] and len(stripped) > 1:
        return stripped[1:-1]
    if stripped.startswith("[") and stripped.endswith("]"):
        inner = stripped[1:-1].strip()
        return [read(part) for part in inner.split(",")] if inner else []
    for kind in (int, float):
        try:
            return kind(stripped.replace("_", "") if kind is int else stripped)
        except ValueError:
            continue
    try:
        return json.loads(stripped) if stripped.startswith("{") else text
    except ValueError:
        return text

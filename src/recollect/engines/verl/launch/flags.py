"""What is given to verl and decides our settings too, and the flags of the published scripts.

A step's tasks are written before verl starts, and agents, rewards and advantages are ours: so what
says how many tasks there are, or who learns, must reach our settings as well (`SHARED`). MemAgent's
own flags, which verl never had, are mapped to what they mean here, or refused with the new name.
Pure, needs no verl.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recollect.agents.fold import FoldAgent
from recollect.config.published_names import Arguments
from recollect.config.train import TrainConfig
from recollect.engines.verl.launch.refusals import DROPPED, FOLD, refuse_flag
from recollect.engines.verl.launch.translate import (
    ACTOR,
    DIVERGENCES,
    MODEL,
    ROLLOUT,
    WEIGHINGS,
    name_of,
    read,
)
from recollect.errors import UserError
from recollect.tasks.base import Split
from recollect.tasks.documents.memagent import MemAgentRows
from recollect.tasks.files.manifest import sha256

SHARED: dict[str, str] = {
    "data.train_batch_size": "rollout.tasks",
    f"{ROLLOUT}.n": "rollout.n",
    f"{ROLLOUT}.temperature": "rollout.temperature",
    f"{ROLLOUT}.top_p": "rollout.top_p",
    f"{ROLLOUT}.val_kwargs.n": "val.n",
    f"{ROLLOUT}.val_kwargs.temperature": "val.temperature",
    f"{ROLLOUT}.val_kwargs.top_p": "val.top_p",
    f"{ACTOR}.optim.lr": "optim.lr",
    f"{ACTOR}.optim.weight_decay": "optim.weight_decay",
    f"{ACTOR}.optim.clip_grad": "optim.clip_norm",
    f"{ACTOR}.fsdp_config.optimizer_offload": "optim.offload",
    f"{ACTOR}.clip_ratio_low": "loss.clip_low",
    f"{ACTOR}.clip_ratio_high": "loss.clip_high",
    f"{ACTOR}.clip_ratio_c": "loss.dual_clip",
    f"{ACTOR}.entropy_coeff": "loss.entropy_coef",
    f"{ACTOR}.kl_loss_coef": "loss.kl_coef",
    f"{ACTOR}.ppo_max_token_len_per_gpu": "token_budget",
    f"{ACTOR}.ppo_epochs": "epochs",
    f"{MODEL}.path": "model.path",
    f"{MODEL}.lora_rank": "model.lora.rank",
    f"{MODEL}.lora_alpha": "model.lora.alpha",
    "trainer.experiment_name": "name",
    "trainer.project_name": "tracking.project",
    "trainer.total_training_steps": "steps",
    "trainer.val_before_train": "val.before_training",
    "trainer.max_actor_ckpt_to_keep": "keep",
}
"""verl's keys and the settings of ours that they decide; verl gets them as they were given."""
FREQUENCIES = {"trainer.save_freq": "save_freq", "trainer.test_freq": "test_freq"}
"""verl takes -1 for never; ours stay as they are then."""
TWO_STAGE = ("agent_name_override", "training_stage", "fixed_model_api")
ESTIMATORS = {
    "rloo": "rloo",
    "reinforce_plus_plus": "reinforce_pp",
    "reinforce_plus_plus_baseline": "reinforce_pp_baseline",
    "gdpo": "gdpo",
}


Inputs = Mapping[Split, Sequence[Path]]

RECURRENT = (
    "recurrent.enable=memory: MemAgent's order (the memory before the chunk) and its 8 chunks of a"
    " text; the prompts are ours, and --agent.prompts.published takes MemAgent's"
)


@dataclass(frozen=True)
class Adopted:
    """Settings and overrides that agree with one another."""

    config: TrainConfig
    overrides: tuple[str, ...]
    """What is left for verl, as it was given."""
    inputs: Inputs = field(default_factory=dict)
    """Files of MemAgent's rows that become the tasks, by split."""
    notes: tuple[str, ...] = ()
    """What a person should know about flags that were taken otherwise than they say."""


def adopt(config: TrainConfig, overrides: Sequence[str]) -> Adopted:
    """Take from verl's overrides what decides our settings; the rest is verl's alone."""
    given = {name_of(text): read(text.partition("=")[2]) for text in overrides}
    for key in given:
        refuse_flag(key, given[key])
    ours = {key for key in given if _is_ours(key)}
    inputs = _inputs(given)
    config, notes = _epochs(_changed(config, given, inputs), given, inputs)
    notes += [f"{key}: {why}" for key, why in DROPPED.items() if key in given]
    if given.get("recurrent.enable") == "memory":
        notes.append(RECURRENT)
    if inputs:
        ours |= {"data.train_files", "data.val_files"}
    left = tuple(text for text in overrides if name_of(text) not in ours)
    return Adopted(config, left, inputs, tuple(notes))


def _is_ours(key: str) -> bool:
    """Tell whether verl must not see a key."""
    return (
        key in DROPPED
        or key.startswith("recurrent.")
        or key in (f"{ROLLOUT}.{name}" for name in TWO_STAGE)
        or key
        in (
            *("algorithm.adv_estimator", "algorithm.grpo_use_adv", "data.context_key"),
            *("data.truncation", "data.shuffle", "reward_model.reward_manager"),
            "trainer.total_epochs",  # which become steps
            f"{MODEL}.path",  # which we make absolute
        )
    )


def _inputs(given: Mapping[str, Any]) -> Inputs:
    """Return MemAgent's files by split, which the keys decide and never the files' names."""
    keys: dict[Split, str] = {"train": "data.train_files", "test": "data.val_files"}
    if not given.keys() & set(keys.values()):
        return {}
    if not given.keys() >= set(keys.values()):
        raise UserError(
            "data.train_files and data.val_files go together",
            "give both, or neither and set --tasks.folder",
        )
    named = {split: given[key] for split, key in keys.items()}
    found: Inputs = {
        split: tuple(Path(n).expanduser() for n in ([value] if isinstance(value, str) else value))
        for split, value in named.items()
    }
    held_out = {path.resolve() for path in found["test"]}
    for path in found["train"]:
        if path.resolve() in held_out:
            raise UserError(
                f"{path} is named in data.train_files and in data.val_files",
                "give other rows to one of them: what is held out is never trained on",
            )
    return found


def data_folder(root: Path, inputs: Inputs) -> Path:
    """Name the folder of the data made from files by what they hold, not by what they are called.

    Files that are missing, as in a dry run elsewhere, count by their names.
    """
    stem = "-".join(dict.fromkeys(path.stem for paths in inputs.values() for path in paths))
    held = [
        [split, [sha256(path) if path.is_file() else str(path) for path in paths]]
        for split, paths in sorted(inputs.items())
    ]
    digest = hashlib.sha256(json.dumps(held).encode()).hexdigest()[:12]
    return root / "data" / f"{stem[:80]}-{digest}"


def _changed(config: TrainConfig, given: Mapping[str, Any], inputs: Inputs) -> TrainConfig:
    """Lay all that is given over the settings at once: some are only right together."""
    changes: dict[str, Any] = {SHARED[key]: value for key, value in given.items() if key in SHARED}
    changes |= {
        ours: given[key]
        for key, ours in FREQUENCIES.items()
        if isinstance(given.get(key), int) and given[key] > 0
    }
    for rule in (_advantage, _updates, _divergence, _weighing, _trackers, _layers, _greedy):
        changes |= rule(config, given)
    stage = {name: given[f"{ROLLOUT}.{name}"] for name in TWO_STAGE if f"{ROLLOUT}.{name}" in given}
    changes |= {name: "" if value is None else str(value) for name, value in stage.items()}
    if given.get("recurrent.enable") == "memory":
        agent = config.agent if isinstance(config.agent, FoldAgent) else FoldAgent()
        changes["agent"] = replace(agent, order="memory_first", max_chunks=8)
    if inputs:
        rows = MemAgentRows(folder=data_folder(config.folder, inputs))
        changes["tasks"] = replace(rows, shuffle=given.get("data.shuffle", True) is not False)
    fold = {
        ours: given[f"recurrent.memory.config.{name}"]
        for name, ours in FOLD.items()
        if f"recurrent.memory.config.{name}" in given
    }
    if fold:
        agent = changes.get("agent", config.agent)
        if not isinstance(agent, FoldAgent):
            raise UserError(
                "recurrent.memory.config is about an agent that folds",
                "add recurrent.enable=memory, or start from the preset hotpotqa",
            )
        changes["agent"] = replace(agent, **fold)
    changed: Arguments = _laid(Arguments.of(config), changes)
    return changed.config


def _epochs(
    config: TrainConfig, given: Mapping[str, Any], inputs: Inputs
) -> tuple[TrainConfig, list[str]]:
    """Turn epochs into steps by the size of the data, unless steps are given."""
    epochs = given.get("trainer.total_epochs")
    if epochs is None or "trainer.total_training_steps" in given:
        return config, []
    rows = _rows(inputs["train"]) if inputs else config.tasks.size("train")
    batches = (rows or 0) // config.rollout.tasks
    if not batches:
        unknown = "the size of the data is not known here" if not rows else f"{rows} rows"
        note = f"trainer.total_epochs: {unknown}, so --steps decides: {config.steps}"
        return config, [note]
    steps = int(epochs) * batches
    note = (
        f"trainer.total_epochs={epochs}: {steps} steps, because {rows} rows make {batches} batches"
        f" of {config.rollout.tasks}"
    )
    return replace(config, steps=steps), [note]


def _rows(trains: Sequence[Path]) -> int | None:
    """Count the rows of Parquet files; None where one is not here or is another kind."""
    if not all(path.is_file() and path.suffix == ".parquet" for path in trains):
        return None
    import pyarrow.parquet as pq

    return sum(int(pq.read_metadata(path).num_rows) for path in trains)


def _laid(value: Any, changes: Mapping[str, Any]) -> Any:
    """Replace settings by dotted name, every dataclass once."""
    fields = {field.name for field in dataclasses.fields(value)}
    direct = {name: new for name, new in changes.items() if name in fields}
    for name in sorted({key.partition(".")[0] for key in changes if "." in key}):
        inner = {key.partition(".")[2]: new for key, new in changes.items()
                 if key.startswith(f"{name}.")}  # fmt: skip
        direct[name] = _laid(direct.get(name, getattr(value, name)), inner)
    return replace(value, **direct)


def _advantage(config: TrainConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    named = given.get("algorithm.adv_estimator")
    if named in ESTIMATORS:
        return {"advantage": ESTIMATORS[named]}
    if named not in (None, "grpo"):
        known = ", ".join(("grpo", *ESTIMATORS))
        raise UserError(
            f"algorithm.adv_estimator={named} is not a known way to compare episodes",
            f"choose from {known}, or set --advantage",
        )
    keys = ("algorithm.grpo_use_adv", "algorithm.norm_adv_by_std_in_grpo")
    divided = [given[key] for key in keys if key in given]
    if divided:
        return {"advantage": "grpo_std" if divided[0] else "grpo"}
    return {"advantage": "grpo"} if named and not config.advantage.startswith("grpo") else {}


def _updates(config: TrainConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    tasks = given.get("data.train_batch_size", config.rollout.tasks)
    part = given.get(f"{ACTOR}.ppo_mini_batch_size")
    return {"updates_per_step": max(1, tasks // part)} if part else {}


def _divergence(config: TrainConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    named = {
        **{theirs: ours for ours, theirs in DIVERGENCES.items()},
        **{k: k for k in DIVERGENCES},
    }
    if (kind := given.get(f"{ACTOR}.kl_loss_type")) is not None:
        if kind not in named:
            raise UserError(
                f"{ACTOR}.kl_loss_type={kind} is not a known divergence",
                f"choose from {', '.join(DIVERGENCES.values())}",
            )
        changes["loss.kl"] = named[kind]
    used = given.get(f"{ACTOR}.use_kl_loss")
    if used is False and config.loss.kl_in == "loss":
        changes["loss.kl_coef"] = 0.0
    elif used and not given.get(f"{ACTOR}.kl_loss_coef", config.loss.kl_coef):
        changes["loss.kl_coef"] = 0.001
    if used:
        changes["loss.kl_in"] = "loss"
    return changes | _charged(config, given)


def _charged(config: TrainConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    """Take over a KL that is charged in the reward: it is our advantages that count."""
    keys = ("algorithm.use_kl_in_reward", "algorithm.kl_ctrl.kl_coef", "algorithm.kl_penalty")
    in_reward = given.get(keys[0], config.loss.kl_in == "reward")
    if not given.keys() & set(keys):
        return {}
    if given.get(f"{ACTOR}.use_kl_loss"):
        if given.get("algorithm.use_kl_in_reward"):
            raise UserError(
                "the KL goes into the loss or into the reward, not into both",
                f"leave out {ACTOR}.use_kl_loss or algorithm.use_kl_in_reward",
            )
        return {}
    if not in_reward:
        return {"loss.kl_coef": 0.0} if config.loss.kl_in == "reward" else {}
    coefficient = given.get("algorithm.kl_ctrl.kl_coef", config.loss.kl_coef or 0.001)
    changes: dict[str, Any] = {"loss.kl_in": "reward", "loss.kl_coef": coefficient}
    if (kind := given.get("algorithm.kl_penalty")) is not None:
        named = {theirs: ours for ours, theirs in DIVERGENCES.items()}
        if kind not in named:
            raise UserError(
                f"algorithm.kl_penalty={kind} is not a known divergence",
                f"choose from {', '.join(named)}",
            )
        changes["loss.kl"] = named[kind]
    return changes


def _weighing(config: TrainConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    named = {theirs: ours for ours, theirs in WEIGHINGS.items()}
    mode = given.get(f"{ACTOR}.loss_agg_mode")
    return {"loss.aggregate": named[mode]} if mode in named else {}


def _trackers(config: TrainConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    named = given.get("trainer.logger")
    if named is None:
        return {}
    names = [named] if isinstance(named, str) else named
    return {"trackers": tuple(name for name in names if name != "console")}


def _layers(config: TrainConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    again = given.get(f"{MODEL}.enable_gradient_checkpointing")
    return {} if again is None else {"model.recompute": float(bool(again))}


def _greedy(config: TrainConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    return {"val.temperature": 0.0} if given.get(f"{ROLLOUT}.val_kwargs.do_sample") is False else {}

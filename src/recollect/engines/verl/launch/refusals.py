"""Flags that mean nothing to verl, or something else than they used to: refused with the new name.

Pure, needs no verl.
"""

from __future__ import annotations

from typing import Any

from recollect.engines.verl.launch.translate import ACTOR, MODEL, ROLLOUT
from recollect.errors import UserError

SECTIONS = (
    *("actor_rollout_ref", "algorithm", "critic", "custom_reward_function", "data"),
    *("distillation", "global_profiler", "hydra", "model_engine", "ray_kwargs", "recollect"),
    *("reward", "reward_model", "sandbox_fusion", "skip", "trainer", "transfer_queue"),
)
"""The first words of verl's keys."""
SHORT = {"rollout": ROLLOUT, "actor": ACTOR, "model": MODEL, "ref": "actor_rollout_ref.ref"}
SHORT["optim"] = f"{ACTOR}.optim"
FOLD: dict[str, str] = {
    "chunk_size": "chunk_size",
    "max_memorization_length": "max_memory_tokens",
    "max_final_response_length": "max_answer_tokens",
    "max_chunks": "max_chunks",
}
"""`recurrent.memory.config` and the fold's settings."""
DROPPED: dict[str, str] = {
    "data.filter_overlong_prompts": "no text is too long: it is read in chunks",
    "recurrent.memory.config.max_prompt_length": "questions are never cut",
}
"""Flags that have nothing left to decide."""


def refuse_flag(key: str, value: Any) -> None:
    """Refuse a flag whose meaning is elsewhere now, with the new name."""
    first, _, rest = key.partition(".")
    if first in SHORT:
        raise UserError(f"verl has no {key}", f"write {SHORT[first]}.{rest}")
    if first not in (*SECTIONS, "recurrent"):
        raise UserError(
            f"verl has no {key}",
            f"its keys begin with {', '.join(SECTIONS)}; settings of Recollect go before --",
        )
    allowed: dict[str, tuple[tuple[Any, ...], str, str]] = {
        "recurrent.enable": (
            ("memory",),
            f"recurrent.enable={value} names no agent",
            "start from another preset: curator, bank, or a fold for recurrent.enable=memory",
        ),
        "recurrent.memory.config.context_key": (
            ("context",),
            f"texts cannot be taken from the column {value!r}",
            "name it context; `recollect data memagent` reads such files",
        ),
        "data.context_key": (
            ("context",),
            f"texts cannot be taken from the column {value!r}",
            "name it context; `recollect data memagent` reads such files",
        ),
        "data.truncation": (
            ("center",),
            "MemoryDataset only support center truncation",
            "write data.truncation=center, and --agent.max-chunks for how much is kept",
        ),
        "data.shuffle": (
            (False,),
            "verl may not shuffle: the tasks already come in a random order",
            "set --seed for another order",
        ),
        "reward_model.reward_manager": (
            ("thread",),
            f"there is no reward manager {value!r}: rewards are given where an episode ends",
            "choose the reward with --reward.metric, or start from a preset with another reward",
        ),
        "model_engine": (
            ("dp",),
            f"model_engine={value} is not supported: its checkpoints cannot be merged here",
            "leave out model_engine: weights are shared by FSDP",
        ),
        "algorithm.filter_groups.enable": (
            (False,),
            "verl would draw tasks for dropped groups without end, and from those of later steps",
            "leave it out and set a larger --rollout.tasks: groups that are alike teach nothing",
        ),
        "trainer.v1.sampler.sync_refill_failed_groups": (
            (False,),
            "verl would draw tasks for failed groups from those of later steps",
            "leave it out: a failed episode leaves its group, and is counted",
        ),
        "algorithm.kl_ctrl.type": (
            ("fixed",),
            f"algorithm.kl_ctrl.type={value}: the KL's coefficient stays as it is set here",
            "leave it out and set --loss.kl-coef",
        ),
        "trainer.resume_mode": (
            ("auto",),
            f"trainer.resume_mode={value} would skip the checks before a run continues",
            "set --resume auto, never, or the folder of a checkpoint of the run",
        ),
        "trainer.resume_from_path": (
            (),
            "trainer.resume_from_path would skip the checks before a run continues",
            "set --resume to the folder",
        ),
        "trainer.use_v1": (
            (True,),
            "verl's old trainer takes one context per rollout",
            "leave out trainer.use_v1",
        ),
    }
    if key in allowed and value not in allowed[key][0]:
        raise UserError(*allowed[key][1:])
    gone = {
        "trainer.load_checkpoint": "set --resume to the folder of the checkpoint",
        "recurrent.memory.path": "start from a preset, or set --agent-name-override",
        "recurrent.memory.name": "start from a preset, or set --agent-name-override",
        "custom_reward_function.path": "choose the reward with --reward.metric",
        "reward.custom_reward_function.path": "choose the reward with --reward.metric",
        f"{ROLLOUT}.chat_scheduler": "leave it out: every agent is an async function here",
        f"{ACTOR}.ppo_micro_batch_size": f"set {ACTOR}.ppo_max_token_len_per_gpu",
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": f"set {ACTOR}.ppo_max_token_len_per_gpu",
    }
    if key in gone:
        raise UserError(f"{key} has no effect here", gone[key])
    known = ("recurrent.enable", "recurrent.memory.config.context_key", *DROPPED)
    memory = [f"recurrent.memory.config.{name}" for name in FOLD]
    if first == "recurrent" and key not in (*known, *memory):
        raise UserError(f"there is no {key}", f"known are {', '.join(memory)}")

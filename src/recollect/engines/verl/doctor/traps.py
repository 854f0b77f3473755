"""What this verl does to memory agents unless one takes care: found out by trying, not by version.

Each probe runs verl's own code, or reads the source of the function in question, and says whether
the trap is still there. The numbers are those of docs/cluster.md.
"""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Trap:
    """Something in verl that would change what is learned."""

    number: int
    name: str
    care: str
    """How we go around it."""
    probe: Callable[[], bool]
    """Tell whether it is still there; raises where verl's code has moved."""


@dataclass(frozen=True)
class Found:
    """A trap that was looked for."""

    trap: Trap
    there: bool | None
    """None where the probe could not tell."""
    problem: str = ""


def look() -> list[Found]:
    """Try every trap, without what verl itself has to say meanwhile."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            return [_look(trap) for trap in TRAPS]
        finally:
            logging.disable(logging.NOTSET)


def _look(trap: Trap) -> Found:
    try:
        return Found(trap, trap.probe())
    except Exception as error:  # code that moved can fail in any way
        return Found(trap, None, f"{type(error).__name__}: {error}")


def _source(module: str, *names: str) -> str:
    found: Any = import_module(module)
    for name in names:
        found = getattr(found, name)
        found = getattr(found, "__ray_metadata__", SimpleNamespace(modified_class=found))
        found = found.modified_class
    return inspect.getsource(found)


def _agent_loop(*names: str) -> str:
    return _source("verl.experimental.agent_loop.agent_loop", *names)


def _worker(*names: str) -> str:
    return _source("verl.trainer.ppo.v1.agent_loop_tq", "AgentLoopWorkerTQ", *names)


def _trainer(*names: str) -> str:
    return _source("verl.trainer.ppo.v1.trainer_base", "PPOTrainer", *names)


def _answer_length() -> bool:
    module = "verl.experimental.reward_loop.reward_manager.naive"
    return '["attention_mask"][-response_length:]' in _source(
        module, "NaiveRewardManager", "run_single"
    )


def _extra_info() -> bool:
    return 'final_output.extra_fields["reward_extra_info"]' in _worker("_agent_loop_postprocess")


def _rewards_overwritten() -> bool:
    return "output.reward_score = final_output.reward_score" in _worker("_agent_loop_postprocess")


def _silent_last() -> bool:
    """A session whose last context trains nothing: its other contexts must not lose everything."""
    found = _compared("grpo", keys=["a_0_0", "a_0_1", "a_1_0"], masked=[1])
    return not found[0].any()


def _every_context_counts() -> bool:
    """An episode of two contexts (reward 1) and one of a single (reward 0), leave one out."""
    found = _compared("rloo", keys=["a_0_0", "a_0_1", "a_1_0"])
    return not np.isclose(found[0], 1.0).all()


def _compared(estimator: str, keys: list[str], masked: list[int] | None = None) -> list[np.ndarray]:
    import torch
    from verl.protocol import DataProto
    from verl.trainer.config import AlgoConfig
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    mask = torch.ones(len(keys), 2)
    mask[masked or []] = 0.0
    reward = torch.zeros(len(keys), 2)
    reward[:, 1] = torch.tensor([float(key.split("_")[1] == "0") for key in keys])
    data = DataProto.from_dict(
        {"response_mask": mask, "token_level_rewards": reward},
        {"uid": np.array([key.split("_")[0] for key in keys], dtype=object)},
    )
    found = compute_advantage_for_multi_trajectories(
        data, keys, estimator, norm_adv_by_std_in_grpo=False, config=AlgoConfig()
    )
    return [row.numpy() for row in found.batch["advantages"]]


def _updates_by_rows() -> bool:
    return '"mini_batch_size": ppo_mini_batch_size' in _trainer("_update_actor")


def _registered_twice() -> bool:
    agent_loop = import_module("verl.experimental.agent_loop.agent_loop")
    name = "recollect doctor"
    registry = agent_loop._agent_loop_registry
    registry[name] = {"_target_": "given", "kwarg": 1}
    try:
        agent_loop.register(name)(Trap)
        return "kwarg" not in registry[name]
    finally:
        del registry[name]


def _columns_copied() -> bool:
    return "field.update(kwargs)" in _worker("_agent_loop_postprocess")


def _prompts_cut() -> bool:
    agent_loop = import_module("verl.experimental.agent_loop.agent_loop")
    loop = SimpleNamespace(rollout_config=SimpleNamespace(prompt_length=2))
    cut = agent_loop.AgentLoopBase._cap_text_prompt_length(loop, [1, 2, 3])
    return bool(len(cut) < 3)


def _plugins_vanish() -> bool:
    return 'debug("Failed to load plugin' in inspect.getsource(import_module("verl"))


def _flush() -> bool:
    module = import_module("verl.trainer.ppo.v1.trainer_separate_async")
    return "flush=True" in inspect.getsource(module)


TRAPS = (
    Trap(1, "answers cut before they are rewarded", "episodes bring their reward", _answer_length),
    Trap(2, "a reward without extra fields ends the run", "they are always given", _extra_info),
    Trap(
        3,
        "a fixed model that speaks last erases a session",
        "its contexts are not handed over",
        _silent_last,
    ),
    Trap(
        4,
        "estimators other than grpo count contexts, not episodes",
        "advantages are computed from episodes",
        _every_context_counts,
    ),
    Trap(
        5,
        "a context's own reward is overwritten by the last one's",
        "advantages are computed from episodes",
        _rewards_overwritten,
    ),
    Trap(
        6,
        "more contexts mean more optimiser steps",
        "their number is sent along",
        _updates_by_rows,
    ),
    Trap(7, "an agent loop registered twice loses settings", "once only", _registered_twice),
    Trap(
        9,
        "every context carries all columns of its row",
        "a row names a task in a mapped store",
        _columns_copied,
    ),
    Trap(
        10,
        "long prompts lose their beginning",
        "a context that does not fit is an error",
        _prompts_cut,
    ),
    Trap(
        16,
        "a plugin that cannot be imported vanishes",
        "VERL_USE_EXTERNAL_MODULES, which raises",
        _plugins_vanish,
    ),
    Trap(
        17,
        "separate_async logs with an argument that raises",
        "only the synchronous trainer is used",
        _flush,
    ),
)

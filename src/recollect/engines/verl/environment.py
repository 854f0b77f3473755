"""What every process of a cluster run has to know before it imports verl."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recollect.config.train import TrainConfig

NAME = "recollect"
"""The name of the agent loop and of the rollout engine."""
PLUGIN = "recollect.engines.verl.plugin"
PACKED = "recollect_packed"
"""Our attention for packed rows, by its name among transformers' implementations."""
INTERPRETER = "RECOLLECT_INTERPRETER"
"""What Ray starts its processes with, in the place of Python itself."""
HANDED_ON = ("VERL_USE_EXTERNAL_MODULES", "VERL_PLATFORM", "VERL_ENGINE_DEVICE", "PYTHONPATH")
"""Environment variables that the workers of a cluster need as they are here."""


CACHE = "VLLM_DISABLE_COMPILE_CACHE"
WHOLE_FILES = (2, 10)
"""The torch from which on compiled files appear whole or not at all."""


def compile_cache(torch: str, given: Mapping[str, str]) -> dict[str, str]:
    """Let vLLM keep what it compiled for the next start, unless the user says otherwise.

    verl forbids it, because engines that started together left torn files behind. This torch writes
    whole ones, and what is kept halves the start of an engine.
    """
    found = tuple(int(part) for part in torch.split("+")[0].split(".")[:2])
    if CACHE in given:
        return {CACHE: given[CACHE]}
    return {CACHE: "0"} if found >= WHOLE_FILES else {}


def key_names(config: TrainConfig) -> list[str]:
    """Name the variables that hold the keys of the servers which a run's settings name."""
    asked = [getattr(config.reward, name, None) for name in ("judge_url", "reader_url")]
    keys = [config.models.api_key_env] if config.models.fixed else []
    if any([*asked, config.embed.url]):
        keys.append("OPENAI_API_KEY")  # what judges, readers and embedders look for
    return list(dict.fromkeys(keys))


def tracker_variables(config: TrainConfig) -> dict[str, str]:
    """Return what a run's trackers read: verl opens them on whichever node its trainer runs."""
    prefixes = tuple(f"{name.upper()}_" for name in config.trackers)
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}

"""From settings to what episodes need: the agent with its memories, the reward with its reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.agents.base import Agent, bound, is_ours, servers_of
from recollect.agents.resources import Resources, Stores
from recollect.chat.chat import Model
from recollect.config.train import EmbedConfig, TrainConfig
from recollect.memory.corpus import Corpus
from recollect.memory.leases import MemoryStoreManager
from recollect.memory.store import Embed
from recollect.metrics import find_score
from recollect.policies.presence import check_servers
from recollect.rewards.answers import WithMemoryRecall
from recollect.rewards.base import Reward
from recollect.rewards.function import WithAnswers
from recollect.tasks.base import RememberedFamily, TaskFamily

if TYPE_CHECKING:
    from recollect.memory.embeddings.memories import EmbedOptions

OpenStores = Callable[[RememberedFamily, EmbedConfig], Stores]
"""Opens the memories of tasks, with their vectors where the settings name a cache."""


def make_agent(config: TrainConfig, open_stores: OpenStores | None = None) -> Agent:
    """Give an agent the memories and the embedder that it needs."""
    return bound(config.agent, resources(config, open_stores=open_stores))


def make_reward(config: TrainConfig, models: Mapping[str, Model]) -> Reward:
    """Give a reward the models that read for it, and add step rewards where steps count."""
    made = bound(config.reward, resources(config, models))
    if not is_ours(config.reward):
        made = WithAnswers(made, find_score(config.tasks.metric))
    return WithMemoryRecall(made) if config.outcome_share < 1 else made


def resources(
    config: TrainConfig,
    models: Mapping[str, Model] | None = None,
    open_stores: OpenStores | None = None,
) -> Resources:
    """Describe what a run can open for its parts."""
    opens, tasks, embed = open_stores or manage_stores, config.tasks, config.embed
    if embed.device == "auto":
        embed = replace(embed, device=config.model.device)
    return replace(
        config.resources,
        models=models or {},
        open_stores=_opening(opens, tasks, embed),
        open_embedder=partial(open_embedder, embed),
    )


def _opening(
    opens: OpenStores, tasks: TaskFamily, embed: EmbedConfig
) -> Callable[[], Stores] | None:
    return partial(opens, tasks, embed) if isinstance(tasks, RememberedFamily) else None


def ask_servers(config: TrainConfig) -> None:
    """Refuse a run whose servers do not answer: those of fixed models, readers and judges."""
    models = config.models
    roles = [role for role in models.fixed if models.is_served(role)]
    check_servers({f"models.{role}": models.endpoint(role) for role in roles}, strict=True)
    for section, part in (("agent", config.agent), ("reward", config.reward)):
        check_servers({f"{section}.{name}": at for name, at in servers_of(part).items()})


def open_embedder(embed: EmbedConfig) -> Embed:
    """Embed whatever is read, with the vectors of a cache where the settings name one."""
    from recollect.memory.embeddings.live import LiveEmbedder

    options = _embed_options(embed)
    return LiveEmbedder(options.embedder(), options.open_cache() if embed.cache else None)


def manage_stores(tasks: RememberedFamily, embed: EmbedConfig) -> MemoryStoreManager:
    """Index the memories of the tasks in this process."""
    make, embedder = memories(tasks, embed)
    return MemoryStoreManager(make(), embedder)


def memories(
    tasks: RememberedFamily, embed: EmbedConfig
) -> tuple[Callable[[], Mapping[str, Corpus]], Embed | None]:
    """Return what indexes the memories of the tasks, and what embeds further ones."""
    if embed.cache is None:
        return tasks.corpora, None
    from recollect.memory.embeddings.live import LiveEmbedder

    options = _embed_options(embed)
    cache = options.open_cache()
    return partial(tasks.corpora, cache.matrix), LiveEmbedder(options.embedder(), cache)


def _embed_options(embed: EmbedConfig) -> EmbedOptions:
    from recollect.memory.embeddings.memories import EmbedOptions

    folder = embed.cache or Path()  # only ever read from
    return EmbedOptions(folder, folder, embed.model, embed.url, embed.dtype, device=embed.device)

"""From settings to what episodes need: the agent with its memories, the reward with its reader."""

from __future__ import annotations

from dataclasses import replace

from recollect import metrics
from recollect.agents.base import Agent
from recollect.agents.curator import CuratorAgent
from recollect.chat import Model
from recollect.config import DeltaConfig, TrainConfig
from recollect.delta import MemoryDelta
from recollect.memory.trials import MemoryStoreManager
from recollect.readers import ChatAnswerer, EvidenceReader, MetricScorer, Reader, TextReader
from recollect.rewards import AnswerReward, Reward
from recollect.tasks.base import RememberedFamily

METRICS: dict[str, metrics.Metric] = {
    "boxed_exact_match": metrics.boxed_exact_match,
    "exact_match": metrics.exact_match,
    "sub_exact_match": metrics.sub_exact_match,
    "token_f1": metrics.token_f1,
}


def make_agent(config: TrainConfig) -> Agent:
    """Give an agent that works on memories those that the tasks are about."""
    if isinstance(config.agent, CuratorAgent) and config.remembered:
        return replace(config.agent, stores=open_stores(config, config.remembered))
    return config.agent


def open_stores(config: TrainConfig, tasks: RememberedFamily) -> MemoryStoreManager:
    """Index the memories of the tasks, with their vectors where the settings name a cache."""
    embed = config.embed
    if embed.cache is None:
        return MemoryStoreManager(tasks.corpora())
    from recollect.embed.live import LiveEmbedder
    from recollect.embed.memories import EmbedOptions

    options = EmbedOptions(
        embed.cache, embed.cache, embed.model, embed.url, embed.dtype, device=embed.device
    )
    cache = options.open_cache()
    return MemoryStoreManager(tasks.corpora(cache.matrix), LiveEmbedder(options.embedder(), cache))


def make_reward(config: TrainConfig, model: Model) -> Reward:
    """Make the reward for one batch of episodes.

    It is made anew for every batch: where the policy is the reader, an update changes what it made
    of the memories at the start.
    """
    reward = config.reward
    if not isinstance(reward, DeltaConfig):
        return AnswerReward(METRICS[reward.metric])
    scorer = MetricScorer(METRICS[reward.metric])
    reader: Reader = EvidenceReader()
    if reward.reader == "policy":
        reader = TextReader(ChatAnswerer(model, reward.max_answer_tokens), scorer)
    return MemoryDelta(
        reader,
        reward.retrieval,
        reward.mode,
        reward.growth_budget,
        reward.growth_penalty,
        scorer=scorer,
    )

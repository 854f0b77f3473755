"""From settings to what episodes need: the agent with its memories, the reward with its reader."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from recollect.agents.base import Agent
from recollect.agents.curator import CuratorAgent
from recollect.chat import Model
from recollect.config import DeltaConfig, TrainConfig
from recollect.delta import MemoryDelta
from recollect.judge import Judge
from recollect.memory.trials import MemoryStoreManager
from recollect.metrics import METRICS
from recollect.readers import (
    ChatAnswerer,
    EvidenceReader,
    MetricScorer,
    Reader,
    Scorer,
    TextReader,
)
from recollect.remote import RemoteModel
from recollect.rewards import AnswerReward, Reward
from recollect.tasks.base import RememberedFamily


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
    """Make the reward, with whoever reads for it.

    It keeps how well the memories did at the start, so it must be made anew when that changes:
    after an update, where the policy is the reader.
    """
    reward = config.reward
    if not isinstance(reward, DeltaConfig):
        return AnswerReward(METRICS[reward.metric])
    scorer: Scorer = MetricScorer(METRICS[reward.metric])
    if reward.judge_url:
        scorer = Judge(RemoteModel(reward.judge_url, reward.judge_model, _kept(reward, "judge")))
    reader: Reader = EvidenceReader()
    if reward.reader == "policy":
        reader = TextReader(ChatAnswerer(model, reward.max_answer_tokens), scorer)
    elif reward.reader == "endpoint":
        answerer = RemoteModel(
            reward.reader_url,
            cache=_kept(reward, "reader"),
            max_tokens=reward.max_answer_tokens,
        )
        reader = TextReader(answerer, scorer)
    return MemoryDelta(
        reader,
        reward.retrieval,
        reward.mode,
        reward.growth_budget,
        reward.growth_penalty,
        scorer=scorer,
    )


def _kept(reward: DeltaConfig, who: str) -> Path | None:
    return reward.answers / f"{who}.jsonl" if reward.answers else None

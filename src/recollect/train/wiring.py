"""From settings to what episodes need: the agent with its memories, the reward with its reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from recollect.agents.bank import BankAgent
from recollect.agents.base import Agent
from recollect.agents.curator import CuratorAgent
from recollect.agents.parallel import ParallelAgent
from recollect.chat.chat import Model
from recollect.config.rewards import (
    AnswerAndToolsConfig,
    CallbacksConfig,
    DeltaConfig,
    GatesConfig,
    RoundsConfig,
)
from recollect.config.train import EmbedConfig, RewardConfig, TrainConfig
from recollect.memory.corpus import Corpus
from recollect.memory.leases import MemoryStoreManager
from recollect.memory.store import Embed
from recollect.metrics import METRICS
from recollect.policies.cached import RemoteModel
from recollect.rewards.answers import AnswerAndTools, AnswerReward, WithMemoryRecall
from recollect.rewards.base import Reward
from recollect.rewards.judge import Judge
from recollect.rewards.memory_delta import MemoryDelta
from recollect.rewards.readers import (
    ChatAnswerer,
    EvidenceReader,
    MetricScorer,
    Reader,
    Scorer,
    TextReader,
)
from recollect.rewards.reading import WithCallbacks, WithGates, WithRounds
from recollect.tasks.base import RememberedFamily

if TYPE_CHECKING:
    from recollect.memory.embeddings.memories import EmbedOptions


def make_agent(config: TrainConfig) -> Agent:
    """Give an agent that works on memories those that the tasks are about."""
    if isinstance(config.agent, CuratorAgent) and config.remembered:
        return replace(config.agent, stores=open_stores(config, config.remembered))
    if isinstance(config.agent, BankAgent) and config.agent.tools.embedding:
        return replace(config.agent, embed=open_embedder(config.embed))
    return config.agent


def open_embedder(embed: EmbedConfig) -> Embed:
    """Embed whatever is read, with the vectors of a cache where the settings name one."""
    from recollect.memory.embeddings.live import LiveEmbedder

    options = _embed_options(embed)
    return LiveEmbedder(options.embedder(), options.open_cache() if embed.cache else None)


def open_stores(config: TrainConfig, tasks: RememberedFamily) -> MemoryStoreManager:
    """Index the memories of the tasks, with their vectors where the settings name a cache."""
    make, embed = memories(config, tasks)
    return MemoryStoreManager(make(), embed)


def memories(
    config: TrainConfig, tasks: RememberedFamily
) -> tuple[Callable[[], Mapping[str, Corpus]], Embed | None]:
    """Return what indexes the memories of the tasks, and what embeds further ones."""
    if config.embed.cache is None:
        return tasks.corpora, None
    from recollect.memory.embeddings.live import LiveEmbedder

    options = _embed_options(config.embed)
    cache = options.open_cache()
    return partial(tasks.corpora, cache.matrix), LiveEmbedder(options.embedder(), cache)


def _embed_options(embed: EmbedConfig) -> EmbedOptions:
    from recollect.memory.embeddings.memories import EmbedOptions

    folder = embed.cache or Path()  # only ever read from
    return EmbedOptions(folder, folder, embed.model, embed.url, embed.dtype, device=embed.device)


def make_reward(config: TrainConfig, model: Model) -> Reward:
    """Make the reward, with one for every step where these are to count; one's own is there."""
    given = cast("RewardConfig | Reward", config.reward)
    if not isinstance(given, RewardConfig):
        return given
    outcome = _make_outcome(config, model)
    match config.reward:
        case CallbacksConfig(_, callback, well_formed):
            return WithCallbacks(outcome, callback, well_formed)
        case GatesConfig(_, early, late, malformed):
            return WithGates(outcome, early, late, malformed)
        case RoundsConfig(_, bonus) if isinstance(config.agent, ParallelAgent):
            outcome = WithRounds(outcome, config.agent.max_rounds, bonus)
    return WithMemoryRecall(outcome) if config.outcome_share < 1 else outcome


def _make_outcome(config: TrainConfig, model: Model) -> Reward:
    """Make the reward, with whoever reads for it.

    It keeps how well the memories did at the start, so it must be made anew when that changes:
    after an update, where the policy is the reader.
    """
    reward = config.reward
    if isinstance(reward, AnswerAndToolsConfig):
        return AnswerAndTools(METRICS[reward.metric], reward.boxed_bonus, reward.tool_bonus)
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

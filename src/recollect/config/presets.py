"""Named starting points for `recollect train`; every value can be overridden."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from recollect.agents.bank import BankAgent
from recollect.agents.bank_prompts import LEDGER_PROMPTS
from recollect.agents.callback import CallbackAgent
from recollect.agents.curator import CuratorAgent, CuratorPrompts
from recollect.agents.fold import FoldAgent, FoldPrompts
from recollect.agents.gated import GatedAgent
from recollect.agents.parallel import ParallelAgent
from recollect.agents.recursive import RecursiveAgent
from recollect.chat.tools import Limits
from recollect.config.engine import LossConfig, ModelConfig, OptimConfig
from recollect.config.rollout import RolloutConfig, ValidationConfig
from recollect.config.train import TrainConfig
from recollect.errors import UserError
from recollect.memory.bank_tools import BankTools
from recollect.memory.selection import Retrieval
from recollect.memory.tools import REFERENCE, MemoryTools
from recollect.rewards.answers import AnswerAndTools, AnswerReward
from recollect.rewards.memory_delta import MemoryDelta
from recollect.rewards.programs import ProgramReward
from recollect.rewards.reading import CallbackReward, GateReward, RoundReward
from recollect.tasks.conversations.locomo_folder import Locomo
from recollect.tasks.documents.hotpotqa import HotpotQA
from recollect.tasks.documents.squad import Squad
from recollect.tasks.haystacks.babilong import BabiLong
from recollect.tasks.haystacks.ruler import Ruler
from recollect.tasks.made.chronicle import Chronicle
from recollect.tasks.made.ledger import Ledger
from recollect.tasks.made.ledger_folder import LedgerFiles
from recollect.tasks.made.recall import DIARY, SHORT_DIARY, Recall
from recollect.tasks.made.world import World

DEMO_MODEL = Path(__file__).parents[1] / "demo" / "base"
CURATOR_MODEL = DEMO_MODEL.with_name("curator")
SHORT_DIARY_MODEL = DEMO_MODEL.with_name("short_diary")
TWO_STAGE_MODEL = DEMO_MODEL.with_name("two_stage")

_LOCOMO_LIMITS = Limits(max_assistant_turns=8, max_turn_tokens=512, max_context_tokens=8192)

PRESETS: dict[str, TrainConfig] = {
    "demo": TrainConfig(
        name="demo",
        model=ModelConfig(path=str(DEMO_MODEL), device="cpu", threads=1, cache_gib=1.0),
        tasks=DIARY,
        agent=FoldAgent(
            chunk_size=None,
            max_memory_tokens=3,
            max_answer_tokens=6,
            prompts=FoldPrompts(
                chunk_first="{problem}\n{chunk}\nMemory: {memory}",
                memory_first="{problem}\nMemory: {memory}\n{chunk}",
                answer="{problem}\nMemory: {memory}\nAnswer:",
            ),
        ),
        reward=AnswerReward("boxed_match"),
        rollout=RolloutConfig(tasks=32, n=8),
        loss=LossConfig(kl_coef=0.0),
        optim=OptimConfig(lr=5e-4, warmup_steps=10, weight_decay=0.0),
        updates_per_step=4,
        val=ValidationConfig(
            tasks=512, lengths=(1, 2, 4, 8, 16), length_tasks=512, distractors=(2,)
        ),
        steps=80,
        test_freq=20,
        save_freq=20,
    ),
    "recall": TrainConfig(
        name="recall",
        model=ModelConfig(),
        tasks=Recall(),
        agent=FoldAgent(chunk_size=512, max_memory_tokens=128, max_answer_tokens=64),
        reward=AnswerReward("boxed_match"),
    ),
    "ledger": TrainConfig(
        name="ledger",
        model=ModelConfig(),
        tasks=Ledger(),
        agent=FoldAgent(query_aware=False),
        reward=AnswerReward("value_match"),
    ),
    "hotpotqa": TrainConfig(
        name="hotpotqa",
        model=ModelConfig(recompute=1.0),
        tasks=HotpotQA(),
        agent=FoldAgent(),
        reward=AnswerReward("boxed_exact_match"),  # as MemAgent was trained
        rollout=RolloutConfig(timeout=3600),
        val=ValidationConfig(tasks=128, lengths=(1, 2, 4)),
        test_freq=10,
        save_freq=20,
    ),
    "squad": TrainConfig(  # for a small model on one GPU
        name="squad",
        model=ModelConfig(recompute=1.0),
        tasks=Squad(documents=4),
        agent=FoldAgent(chunk_size=256, max_memory_tokens=80, max_answer_tokens=32),
        reward=AnswerReward("boxed_match"),
        rollout=RolloutConfig(tasks=32, n=16),
        loss=LossConfig(kl_coef=0.0, clip_high=0.28),
        optim=OptimConfig(lr=2e-5, warmup_steps=5, weight_decay=0.0),
        updates_per_step=2,
        token_budget=1 << 17,
        val=ValidationConfig(tasks=512, lengths=(1, 2, 4, 8, 16, 32), length_tasks=256),
        test_freq=10,
        save_freq=20,
    ),
    "chronicle": TrainConfig(  # the same, on texts that change until their end
        name="chronicle",
        model=ModelConfig(recompute=1.0),
        tasks=Chronicle(),
        agent=FoldAgent(chunk_size=None, max_memory_tokens=96, max_answer_tokens=24),
        reward=AnswerReward("boxed_match"),
        rollout=RolloutConfig(tasks=16, n=16),
        loss=LossConfig(kl_coef=0.0, clip_high=0.28),
        optim=OptimConfig(lr=2e-5, warmup_steps=5, weight_decay=0.0),
        updates_per_step=2,
        token_budget=1 << 17,
        val=ValidationConfig(tasks=256, lengths=(1, 2, 4), length_tasks=128),
        test_freq=20,
        save_freq=20,
    ),
    "bank": TrainConfig(
        name="bank",
        model=ModelConfig(recompute=1.0),
        tasks=Ledger(),
        agent=BankAgent(
            chunk_size=None,
            tools=BankTools(passage_size=None),
            prompts=LEDGER_PROMPTS,
        ),
        reward=AnswerAndTools("value_match"),
        rollout=RolloutConfig(tasks=32, n=16, timeout=3600),
        advantage="grpo_std",
        optim=OptimConfig(warmup_steps=0),
        updates_per_step=4,
        val=ValidationConfig(tasks=64),
        test_freq=10,
        save_freq=20,
    ),
    "curator": TrainConfig(
        name="curator",
        model=ModelConfig(path=str(CURATOR_MODEL), device="cpu", threads=1, cache_gib=1.0),
        tasks=World(),
        agent=CuratorAgent(
            tools=MemoryTools(operations=("create",), top_k=4),
            limits=Limits(max_assistant_turns=4, max_turn_tokens=32, min_reply_tokens=32),
            prompts=CuratorPrompts(system="", user="{question}"),
        ),
        reward=MemoryDelta(retrieval=Retrieval(top_k=3), growth_budget=4),
        rollout=RolloutConfig(tasks=32, n=8),
        loss=LossConfig(kl_coef=0.0),
        optim=OptimConfig(lr=1e-3, warmup_steps=5, weight_decay=0.0),
        val=ValidationConfig(tasks=512, temperature=1.0),
        steps=60,
        test_freq=10,
        save_freq=20,
    ),
    "locomo": TrainConfig(
        name="locomo",
        model=ModelConfig(recompute=1.0),
        tasks=Locomo(),
        agent=CuratorAgent(limits=_LOCOMO_LIMITS),
        reward=MemoryDelta(),
        rollout=RolloutConfig(tasks=16, n=8, timeout=1800),
        val=ValidationConfig(tasks=128),
        steps=100,
        test_freq=10,
    ),
}

# The published system's tools: nothing but search and create; its search is by meaning, and with
# --agent.tools.mode dense --embed.cache FOLDER it is here too.
PRESETS["locomo_published"] = replace(
    PRESETS["locomo"],
    name="locomo_published",
    agent=CuratorAgent(tools=replace(REFERENCE, mode="bm25"), limits=_LOCOMO_LIMITS),
)
PRESETS["ledger_qa"] = replace(PRESETS["bank"], name="ledger_qa", tasks=LedgerFiles())
PRESETS |= {  # needles in texts of six chunks; this kind of RULER's needs no data
    "ruler": replace(
        PRESETS["hotpotqa"],
        name="ruler",
        tasks=Ruler(tokens=28672),
        reward=AnswerReward("ruler_recall"),
    ),
    "babilong": replace(
        PRESETS["hotpotqa"],
        name="babilong",
        tasks=BabiLong(tokens=28672),
        reward=AnswerReward("boxed_match"),
    ),
}
PRESETS |= {  # other ways of reading the same texts, with the shares and rewards of their papers
    "callback": replace(
        PRESETS["hotpotqa"],
        name="callback",
        agent=CallbackAgent(),
        reward=CallbackReward("boxed_exact_match"),
        outcome_share=0.8,
    ),
    "gated": replace(
        PRESETS["hotpotqa"],
        name="gated",
        agent=GatedAgent(),
        reward=GateReward("boxed_exact_match"),
        outcome_share=0.9,
    ),
    "parallel": replace(
        PRESETS["hotpotqa"],
        name="parallel",
        agent=ParallelAgent(),
        reward=RoundReward("boxed_exact_match"),
    ),
    "recursive": replace(
        PRESETS["hotpotqa"],
        name="recursive",
        agent=RecursiveAgent(),
        reward=ProgramReward("boxed_exact_match"),
    ),
}
PRESETS["short_diary"] = replace(  # one rule in short chunks: learned in a minute
    PRESETS["demo"],
    name="short_diary",
    model=replace(PRESETS["demo"].model, path=str(SHORT_DIARY_MODEL)),
    tasks=SHORT_DIARY,
    optim=OptimConfig(lr=5e-4, warmup_steps=20, weight_decay=0.0),
    val=ValidationConfig(tasks=512, lengths=(1, 2, 4, 8, 16), length_tasks=512),
    steps=100,
)
PRESETS["two_stage"] = replace(
    PRESETS["short_diary"],  # with a base that has something to learn in both roles
    name="two_stage",
    model=replace(PRESETS["demo"].model, path=str(TWO_STAGE_MODEL)),
    optim=OptimConfig(lr=5e-4, warmup_steps=5, weight_decay=0.0),
    # Sampled, as in training: what such a base does by chance is what it has to unlearn.
    val=ValidationConfig(tasks=256, n=2, temperature=1.0),
)
PRESETS["memagent_published"] = replace(  # to evaluate released checkpoints as they were trained
    PRESETS["hotpotqa"],
    name="memagent_published",
    agent=FoldAgent(
        order="memory_first",
        max_chunks=8,
        prompts=FoldPrompts(published=Path("MemAgent/recurrent/impls/memory.py")),
    ),
)


PRESETS = {name: replace(config, preset=name) for name, config in PRESETS.items()}


def preset(name: str) -> TrainConfig:
    """Return a preset by name."""
    if name not in PRESETS:
        raise UserError(f"there is no preset {name!r}", f"choose from {', '.join(PRESETS)}")
    return PRESETS[name]

"""Agents by name, as an evaluation asks for them. They share their limits, so that they compare."""

from __future__ import annotations

from dataclasses import replace

from recollect.agents.bank import BankAgent
from recollect.agents.base import Agent
from recollect.agents.baselines import ClosedBookAgent, FullContextAgent, OracleAgent
from recollect.agents.callback import CallbackAgent
from recollect.agents.fold import FoldAgent
from recollect.agents.gated import GatedAgent
from recollect.agents.parallel import ParallelAgent
from recollect.agents.rag import RagAgent
from recollect.agents.recursive import RecursiveAgent
from recollect.agents.rolling import RollingAgent
from recollect.memory.bank_tools import BankTools

PASSAGES = 20
"""RAG shows this many at most, if they fit."""


def agents(
    chunk_size: int = 5000,
    max_memory_tokens: int = 1024,
    max_answer_tokens: int = 1024,
) -> dict[str, Agent]:
    """Return every agent with this chunk size and this limit for answers.

    The passages that RAG shows take as much room as a chunk. An embedder is not here: `bind` gives
    it to those that search by meaning.
    """
    passage = min(256, max(1, chunk_size // 8))  # several fit where the chunks are small, too
    rag = RagAgent("bm25", passage, PASSAGES, chunk_size, max_answer_tokens)
    fold = FoldAgent(chunk_size, max_memory_tokens, max_answer_tokens)
    tools = BankTools(embedding=False)
    bank = BankAgent(chunk_size, max_core_tokens=max_memory_tokens, tools=tools)
    longest = max(max_memory_tokens, max_answer_tokens)
    return {
        "full_context": FullContextAgent(max_answer_tokens=max_answer_tokens),
        "closed_book": ClosedBookAgent(max_answer_tokens),
        "oracle": OracleAgent(max_answer_tokens),
        "rag": rag,
        "rag_dense": replace(rag, mode="dense"),
        "rag_hybrid": replace(rag, mode="hybrid"),
        "fold": fold,
        "fold_blind": replace(fold, query_aware=False),
        "callback": CallbackAgent(chunk_size, max_memory_tokens, max_answer_tokens),
        "gated": GatedAgent(chunk_size, max_memory_tokens, max_answer_tokens),
        "parallel": ParallelAgent(
            chunk_size, min(256, max_memory_tokens), max_memory_tokens, max_answer_tokens
        ),
        "recursive": RecursiveAgent(
            max_part_tokens=chunk_size, max_answer_tokens=max_answer_tokens
        ),
        "rolling": RollingAgent(chunk_size, max_memory_tokens, max_answer_tokens),
        "bank": replace(bank, limits=replace(bank.limits, max_turn_tokens=longest)),
    }


AGENTS = agents()
"""With their usual settings."""

"""How long the contexts of an agent can get: what a server and a trainer must make room for.

verl stores a context as a prompt (up to the first sampled token) and a response (the rest, with
what tools said in it). It cuts longer prompts from the left and longer responses from the right, so
these are upper bounds; nothing is padded to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from recollect.agents.bank import BankAgent
from recollect.agents.curator import CuratorAgent
from recollect.agents.fold import FoldAgent

STEP = 1024
AROUND = 2048
"""Tokens for the problem and for the texts around chunk and memory: MemAgent's 8,192 in all."""
USUAL = 16384
"""Of a chat with tools, where neither its limits nor the model's window are known."""


@dataclass(frozen=True)
class Lengths:
    """Upper bounds in tokens."""

    prompt: int
    response: int
    context: int
    """Both together: never more than the model's window."""


def lengths(agent: FoldAgent | CuratorAgent | BankAgent, window: int | None) -> Lengths:
    """Bound the contexts of an agent, within the model's window where that is known."""
    if isinstance(agent, FoldAgent):
        response = max(agent.max_memory_tokens, agent.max_answer_tokens)
        if agent.chunk_size is None:  # the task's own chunks: as long as they please
            context = window or USUAL
            return Lengths(context - response, response, context)
        prompt = _rounded(agent.chunk_size + agent.max_memory_tokens + AROUND)
        context = min(prompt + response, window or prompt + response)
        return Lengths(context - response, response, context)
    context = agent.limits.max_context_tokens or window or USUAL
    return Lengths(context, context, context)


def _rounded(tokens: int) -> int:
    return -(-tokens // STEP) * STEP

"""How long the contexts of an agent can get: what a server and a trainer must make room for.

verl stores a context as a prompt (up to the first sampled token) and a response (the rest, with
what tools said in it). It cuts longer prompts from the left and longer responses from the right, so
these are upper bounds; nothing is padded to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from recollect.agents.callback import CallbackAgent
from recollect.agents.parallel import ParallelAgent
from recollect.config.agents import AgentConfig, OneText

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


def lengths(agent: AgentConfig, window: int | None) -> Lengths:
    """Bound the contexts of an agent, within the model's window where that is known."""
    if isinstance(agent, OneText):
        response = max(agent.max_memory_tokens, agent.max_answer_tokens)
        if agent.chunk_size is None:  # the task's own chunks: as long as they please
            context = window or USUAL
            return Lengths(context - response, response, context)
        prompt = _rounded(_shown(agent, agent.chunk_size) + AROUND)
        context = min(prompt + response, window or prompt + response)
        return Lengths(context - response, response, context)
    context = agent.limits.max_context_tokens or window or USUAL
    return Lengths(context, context, context)


def _shown(agent: OneText, chunk_size: int) -> int:
    """Return the tokens of text, memories and notes in a prompt, at most."""
    if isinstance(agent, CallbackAgent):
        return chunk_size + 2 * agent.max_memory_tokens
    if isinstance(agent, ParallelAgent):  # a number stands before every note
        chunk_size = max(chunk_size, agent.fan_in * (agent.max_note_tokens + 8))
    return chunk_size + agent.max_memory_tokens


def _rounded(tokens: int) -> int:
    return -(-tokens // STEP) * STEP

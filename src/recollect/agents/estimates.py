"""What an agent's contexts and episodes come to at most, judged from its settings and a task.

Servers and trainers make room for `Lengths`; a dry run adds up `Work`. verl stores a context as a
prompt (up to the first sampled token) and a response (the rest, with what tools said in it). It
cuts longer prompts from the left and longer responses from the right; nothing is padded to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.chat.tools import Limits
from recollect.errors import UserError

STEP = 1024
AROUND = 2048
"""Tokens for the problem and for the texts around chunk and memory: MemAgent's 8,192 in all."""
WORDS = 256
"""Tokens that must be left for them at the least."""
USUAL = 16384
"""Tokens of a context when neither its limits nor the model's window are known."""


@dataclass(frozen=True)
class Lengths:
    """Upper bounds in tokens."""

    prompt: int
    response: int
    context: int
    """Both together: never more than the model's window."""


@dataclass(frozen=True)
class Work:
    """What one episode asks of the model, at most."""

    contexts: float
    prompt: float
    """Tokens of text and memory that are read."""
    common: float
    """Those of them that all episodes of a task read alike, so that they can share them."""
    sampled: float


def text_lengths(
    shown: int | None, max_memory_tokens: int, max_answer_tokens: int, window: int | None
) -> Lengths:
    """Bound contexts of one prompt and one reply; `shown` is None where chunks have any length."""
    response = max(max_memory_tokens, max_answer_tokens)
    if shown is None:
        context = window or USUAL
    else:
        prompt = -(-(shown + AROUND) // STEP) * STEP
        context = min(prompt + response, window or prompt + response)
    return Lengths(context - response, response, context)


def chat_lengths(limits: Limits, window: int | None) -> Lengths:
    """Bound chats with tools, whose first reply may come early and whose last one late."""
    context = limits.max_context_tokens or window or USUAL
    return Lengths(context, context, context)


def reading_work(
    sizes: Sequence[int],
    questions: int,
    max_memory_tokens: int,
    max_answer_tokens: int,
    memories: int = 1,
) -> Work:
    """Add up an episode that reads chunks of these sizes with `memories` texts beside each."""
    written = len(sizes) * max_memory_tokens
    shown = memories * (written + questions * max_memory_tokens)
    return Work(
        len(sizes) + questions,
        sum(sizes) + shown,
        sum(sizes),
        written + questions * max_answer_tokens,
    )


def said_in_chat(limits: Limits, window: int) -> tuple[int, int]:
    """Return the tokens that a chat with tools holds, and those that are sampled in it."""
    most = min(window, limits.max_context_tokens or window)
    return most, min(most, limits.max_assistant_turns * limits.max_turn_tokens)


def check_chunks(
    chunk_size: int | None, kept: int, times: int, window: int, name: str = "memory"
) -> None:
    """Refuse a window without room for a chunk and a text that is shown and written `times` in all.

    The task's own chunks, without a size, are not known here.
    """
    setting = f"--agent.max-{name}-tokens"
    beside = f"a {name} of {kept} tokens, {times} times in a context,"
    if chunk_size is None:
        if times * kept >= window:
            raise UserError(
                f"{beside} does not fit the model's window of {window}",
                f"set {setting} below {-(-window // times)}",
            )
        return
    rest = times * kept + WORDS
    if chunk_size + rest <= window:
        return
    fix = f"set --agent.chunk-size to at most {window - rest}"
    if rest >= window:
        each = (window - WORDS) // (times + 1)
        fix = f"set --agent.chunk-size and {setting} to at most {each}"
        if each < 1:
            fix = "choose a model with a larger window"
    raise UserError(
        f"chunks of {chunk_size} tokens and {beside} do not fit the model's window of {window}", fix
    )

"""Contexts as verl's training rows, and back: one row for each context that is trained.

Pure functions. A row is cut where the first reply begins: what comes before is the prompt, and
everything after it the response, with a mask that is 1 exactly at sampled tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recollect.types import Context, Episode, Turn


@dataclass(frozen=True)
class VerlRow:
    """What verl gets of one context."""

    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    response_logprobs: list[float]
    turns: int


def trained_contexts(episode: Episode) -> list[Context]:
    """Return the contexts that become rows, in order: those of the model that learns.

    An episode that failed has rows only if the agent itself failed it. verl takes the reward of the
    last row for the session's, so a fixed model's must not be it.
    """
    if not episode.counts:
        return []
    return [context for context in episode.contexts if context.trainable and context.turns]


def make_row(context: Context, window: int) -> VerlRow:
    """Cut a context into prompt and response; nothing is left out, and nothing added."""
    if not context.exact:
        raise ValueError(f"{context.label or context.role}: its tokens are not those of its model")
    first, last = context.turns[0].start, context.turns[-1].end
    if first < 1 or last > window:
        # verl would cut the beginning off, and train on what was never sampled.
        raise ValueError(
            f"{context.label or context.role}: {last} tokens with {first} before the first reply"
            f" do not fit a window of {window}"
        )
    mask = np.zeros(last - first, dtype=np.int64)
    logprobs = np.zeros(last - first, dtype=np.float64)
    for turn in context.turns:
        mask[turn.start - first : turn.end - first] = 1
        logprobs[turn.start - first : turn.end - first] = turn.logprobs
    ids = list(context.ids)
    return VerlRow(
        ids[:first], ids[first:last], mask.tolist(), logprobs.tolist(), len(context.turns)
    )


def compact(episode: Episode) -> Episode:
    """Put an episode's tokens into arrays: a fraction of the bytes, for the way to the trainer."""
    contexts = []
    for context in episode.contexts:
        ids = np.asarray(context.ids, dtype=np.int32)
        turns = [
            Turn(
                turn.start,
                ids[turn.start : turn.end],  # type: ignore[arg-type]
                np.asarray(turn.logprobs, dtype=np.float32),  # type: ignore[arg-type]
                turn.stop_reason,
            )
            for turn in context.turns
        ]
        contexts.append(Context(**{**vars(context), "ids": ids, "turns": turns}))
    task = episode.task.without_text()
    return Episode(**{**vars(episode), "task": task, "contexts": contexts})

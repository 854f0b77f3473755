"""The rollouts of one task side by side: what each wrote, and where they first part."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from recollect.advantages import lowest
from recollect.view.films import Trace, trace
from recollect.view.stored import Stored


def siblings(numbers: Sequence[int], group: Sequence[Stored]) -> dict[str, Any]:
    """Return a group as the page shows it."""
    traces = [trace(own) for own in group]
    advantages = _advantages(group)
    replies = [[frame.said.text for frame in own.frames] for own in traces]
    parting = next((i for i, said in enumerate(zip_longest(*replies)) if len(set(said)) > 1), None)
    questions = group[0].questions
    return {
        "task": group[0].task,
        "questions": [{"text": q.text, "answers": list(q.answers)} for q in questions],
        "divergence": parting,
        "rollouts": [
            _rollout(n, own, advantage, parting)
            for n, own, advantage in zip(numbers, traces, advantages, strict=True)
        ],
    }


def _advantages(group: Sequence[Stored]) -> list[float | None]:
    """Return what each earned above the mean of its group; failures as training counts them."""
    counted = [own for own in group if not own.failure or own.failure.get("fault") == "agent"]
    earned = [own.reward or 0.0 for own in counted if not own.failure]
    if not earned or any(own.reward is None and not own.failure for own in group):
        return [None] * len(group)
    floor = lowest(earned)
    rewards = [floor if own.failure else own.reward or 0.0 for own in counted]
    mean = sum(rewards) / len(rewards)
    return [
        (floor if own.failure else own.reward or 0.0) - mean if own in counted else None
        for own in group
    ]


def _rollout(n: int, own: Trace, advantage: float | None, parting: int | None) -> dict[str, Any]:
    stored = own.stored
    return {
        "n": n,
        "rollout": stored.rollout,
        "reward": stored.reward,
        "advantage": advantage,
        "scores": list(stored.scores),
        "answers": list(stored.answers),
        "failure": stored.failure,
        "causes": [life.cause for life in own.lives],
        "turns": [
            {
                "label": frame.part.label,
                "role": frame.part.role,
                "text": frame.said.text,
                "memory": frame.memory,
                "holds": any(life.holds[i] for life in own.lives),
                "died": any(life.died == i for life in own.lives),
                "parts": i == parting,
            }
            for i, frame in enumerate(own.frames)
        ],
    }

"""Episodes and samples by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recollect.types import Context, Episode, Question, Sample, Task, Turn


def samples_of_groups(counts: Sequence[int]) -> list[Sample]:
    """Make so many samples of every group."""
    one = np.zeros(1)
    return [
        Sample(one.astype(np.int64), one.astype(bool), one, one, group, group)
        for group, count in enumerate(counts)
        for _ in range(count)
    ]


def task(name: str = "t", text: str = "text") -> Task:
    """Make a task with one chunk and one question."""
    return Task(name, (text,), (Question("what?", ("it",), category="kind"),), "made")


def context(
    prompt: Sequence[int], *said: Sequence[int], between: Sequence[int] = (), **settings
) -> Context:
    """Make a context: a prompt, then replies with the same tokens between every two of them."""
    made = Context(settings.pop("role", "memory"), settings.pop("stratum", "memory"), **settings)
    made.ids = list(prompt)
    for number, reply in enumerate(said):
        made.ids += list(between) if number else []
        logprobs = tuple(-0.1 * (i + 1) for i in range(len(reply)))
        made.turns.append(Turn(len(made.ids), tuple(reply), logprobs, "stop"))
        made.ids += list(reply)
    return made


def episode(
    *contexts: Context, rollout: int = 0, reward: float | None = 1.0, **settings
) -> Episode:
    """Make an episode that went well."""
    scores = {"answer": reward or 0.0}
    return Episode(
        settings.pop("task", task()),
        rollout,
        list(contexts),
        reward=reward,
        scores=scores,
        **settings,
    )

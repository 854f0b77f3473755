"""Rows: samples of a mini-batch with what the loss needs to know of each beside the sample itself.

Knows nothing of models; arrays of a row have one element per trained token.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recollect.config.engine import Scope
from recollect.types import Sample


@dataclass(frozen=True)
class Row:
    """A sample on its way into the loss."""

    sample: Sample
    weight: float
    """The weight of each of its trained tokens in the whole mini-batch."""
    old: np.ndarray | None = None
    """The trainer's own logprobs before the batch."""
    sequence: np.ndarray | None = None
    """The mean log-ratio of the sequence that each token is of, where it spans samples."""


OnRow = Callable[[Row, np.ndarray], None]
"""A function of a row and the logprobs of its trained tokens when they were learned from."""


def tell(on_row: OnRow, predicted: Sequence[tuple[Sequence[Row], Any]]) -> None:
    """Cut the logprobs of micro-batches into those of their rows."""
    for rows, logprob_T in predicted:
        trained = [int(row.sample.trained.sum()) for row in rows]
        parts = np.split(logprob_T.float().cpu().numpy(), np.cumsum(trained)[:-1])
        for row, own in zip(rows, parts, strict=True):
            on_row(row, own)


def sequences(samples: Sequence[Sample], scope: Scope) -> np.ndarray:
    """Number the sequence of every trained token, sample after sample, from 0.

    A turn is a run of sampled tokens: between two of them is what the chat template writes.
    """
    if scope == "episode":
        episode_B = np.array([sample.episode for sample in samples])
        _, number_B = np.unique(episode_B, return_inverse=True)
        return np.repeat(number_B, [int(sample.trained.sum()) for sample in samples])
    parts, first = [], 0
    for sample in samples:
        at = np.flatnonzero(sample.trained)
        breaks = (np.diff(at) > 1) if scope == "turn" else np.zeros(max(len(at) - 1, 0), dtype=bool)
        number = first + np.concatenate([[0], np.cumsum(breaks)])[: len(at)].astype(np.int64)
        first = int(number[-1]) + 1 if len(number) else first
        parts.append(number)
    return np.concatenate(parts)


def with_episode_ratios(rows: Sequence[Row], logprobs: Sequence[np.ndarray]) -> list[Row]:
    """Tell every row the mean log-ratio of its episode, given all rows' present logprobs."""
    ratios = []
    for row, now in zip(rows, logprobs, strict=True):
        before = row.sample.logprobs[row.sample.trained] if row.old is None else row.old
        ratios.append(np.clip(now - before, -20.0, 20.0))
    total: dict[int, float] = {}
    count: dict[int, int] = {}
    for row, own in zip(rows, ratios, strict=True):
        episode = row.sample.episode
        total[episode] = total.get(episode, 0.0) + float(own.sum(dtype=np.float64))
        count[episode] = count.get(episode, 0) + len(own)
    return [
        dataclasses.replace(
            row,
            sequence=np.full(
                len(own),
                total[row.sample.episode] / max(count[row.sample.episode], 1),
                dtype=np.float32,
            ),
        )
        for row, own in zip(rows, ratios, strict=True)
    ]

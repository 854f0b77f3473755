"""Rules that pick a value or a document: by a feature, by all at once, or by the question's words.

Where a rule leaves several to choose from, it scores what a blind choice among them would. Knows
nothing of families or tables.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from recollect.memory.search import K1, B
from recollect.memory.terms import words
from recollect.tasks.audit.features import NAMES, Column


@dataclass(frozen=True)
class Candidates:
    """What can be picked for one question, and which of it is right."""

    task: int
    features: Mapping[str, Column]
    right: np.ndarray
    """bool"""
    unread: float = 0.0
    """What a guess scores that reads nothing but knows the kind of answer."""

    @cached_property
    def chance(self) -> float:
        """What a guess scores: among all of it, or among the answers of the asked kind."""
        return max(float(self.right.mean()), self.unread)

    @cached_property
    def levels(self) -> Mapping[str, np.ndarray]:
        """Every feature's figures, numbered from the smallest; equal figures have one number."""
        columns = np.stack(list(self.features.values()))  # (features, choices)
        order = columns.argsort(axis=1)
        figures = np.take_along_axis(columns, order, axis=1)
        numbers = np.zeros(columns.shape, int)
        numbers[:, 1:] = (figures[:, 1:] != figures[:, :-1]).cumsum(axis=1)
        levels = np.empty_like(numbers)
        np.put_along_axis(levels, order, numbers, axis=1)
        return dict(zip(self.features, levels, strict=True))

    def only(self, kept: np.ndarray) -> Candidates:
        """Return the same with fewer to pick from: those where `kept` is true."""
        columns = {name: column[kept] for name, column in self.features.items()}
        return Candidates(self.task, columns, self.right[kept], self.unread)


@dataclass(frozen=True)
class Pick:
    """A rule: the largest or the smallest figure of a feature, or the one after it."""

    feature: str
    most: bool
    second: bool = False

    @property
    def name(self) -> str:
        """What people call it."""
        known = NAMES.get((self.feature, self.most))
        known = known or f"{'most' if self.most else 'least'}: {self.feature}"
        return f"second {known}" if self.second else known


_PLACES = {(False, False): 0, (False, True): 1, (True, False): -1, (True, True): -2}
"""Where a rule's figure is in the order of all: by whether the most is taken, and the second."""


def pick_scores(
    choices: Sequence[Candidates], features: Sequence[str]
) -> Iterator[tuple[Pick, list[float]]]:
    """Yield every rule of some features with its scores; a guess where too little differs."""
    for name in features:
        by_figure = [_right_by_figure(choice, name) for choice in choices]
        for (most, second), place in _PLACES.items():
            scores = [
                shares[place] if len(shares) > second else choice.chance
                for choice, shares in zip(choices, by_figure, strict=True)
            ]
            yield Pick(name, most, second), scores


def _right_by_figure(choice: Candidates, feature: str) -> list[float]:
    """Return the share of what is right for every figure of a feature, the smallest first."""
    at = choice.levels[feature]
    shares: list[float] = (np.bincount(at, choice.right) / np.bincount(at)).tolist()
    return shares


# All features at once

_RIDGE = 1.0
_ROUNDS = 12


def probe_scores(choices: Sequence[Candidates], features: Sequence[str]) -> dict[int, float]:
    """Fit a logistic regression on every other task; return what it scores on the rest, by place.

    It sees how each choice ranks among the others by every feature, and how far from the middle: it
    finds what no single rule does, but several together.
    """
    fitted = [choice for choice in choices if choice.task % 2 == 0]
    if not fitted or not features or not any(choice.right.any() for choice in fitted):
        return {}
    weights = _fit(
        np.concatenate([_ranked(choice, features) for choice in fitted]),
        np.concatenate([choice.right for choice in fitted]).astype(float),
    )
    scores = {}
    for place, choice in enumerate(choices):
        if choice.task % 2:
            figures = _ranked(choice, features) @ weights
            scores[place] = float(choice.right[figures >= figures.max() - 1e-9].mean())
    return scores


def _ranked(choice: Candidates, features: Sequence[str]) -> np.ndarray:
    levels = np.stack([choice.levels[name] for name in features])
    top = levels.max(axis=1, keepdims=True)
    ranks = np.where(top, levels / np.maximum(top, 1) - 0.5, 0.0)
    rows = np.ones((1 + 2 * len(features), len(choice.right)))
    rows[1::2], rows[2::2] = ranks, np.abs(ranks) - 0.25
    return np.ascontiguousarray(rows.T)


def _fit(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the weights of a ridge logistic regression, by Newton's method."""
    weights = np.zeros(x.shape[1])
    penalty = _RIDGE * np.eye(x.shape[1])
    for _ in range(_ROUNDS):
        p = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        slope = x.T @ (y - p) - penalty @ weights
        curve = (x * (p * (1 - p))[:, None]).T @ x + penalty
        step = np.linalg.solve(curve, slope)
        weights = weights + step
        if np.abs(step).max() < 1e-6:
            break
    return weights


# By the words of the question


class WordIndex:
    """Texts that can be scored by the words they share with a question (BM25)."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._counts = [Counter(words(text)) for text in texts]
        sizes = [counts.total() for counts in self._counts]
        mean = sum(sizes) / max(1, len(sizes)) or 1.0
        self._norms = [K1 * (1 - B + B * size / mean) for size in sizes]

    def scores(self, query: str) -> np.ndarray:
        """Return the score of every text."""
        scores = np.zeros(len(self._counts))
        for term in set(words(query)):
            held = [(i, own[term]) for i, own in enumerate(self._counts) if term in own]
            weight = math.log(1 + (len(scores) - len(held) + 0.5) / (len(held) + 0.5))
            for i, count in held:
                scores[i] += weight * count / (count + self._norms[i])
        return scores


def best(figures: np.ndarray) -> Iterator[int]:
    """Yield the places of the largest figure."""
    yield from np.flatnonzero(figures >= figures.max() - 1e-12).tolist()

"""RULER's string match: which of the references the prediction contains, whatever the case.

As published it looks for substrings, so "5" is found in "45": its references are long numbers and
rare words. Unlike the published one, what is nothing ("", "the") is never found.
"""

from __future__ import annotations

from recollect.metrics.answers import normalise


def ruler_recall(prediction: str, answers: tuple[str, ...]) -> float:
    """Score the share of the references that are found: all of them are asked for."""
    found = _found(prediction, answers)
    return sum(found) / len(found) if found else 0.0


def ruler_any(prediction: str, answers: tuple[str, ...]) -> float:
    """Score 1 if one of the references is found: they are different answers to one question."""
    return float(any(_found(prediction, answers)))


def _found(prediction: str, answers: tuple[str, ...]) -> list[bool]:
    said = prediction.lower()
    return [answer.lower() in said and normalise(answer) != "" for answer in answers]

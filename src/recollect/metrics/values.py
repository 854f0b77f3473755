"""Answers by their value: numbers as numbers, lists in any order."""

from __future__ import annotations

from decimal import Decimal

from recollect.metrics.answers import is_amount, listed, plain_number, tokens
from recollect.metrics.spans import answer_span


def numeric_match(prediction: str, answers: tuple[str, ...]) -> float:
    """Score 1 if the final answer has one number and it has exactly the value of an answer.

    "3 or 4" has two, and neither is its answer. An answer that is not a number matches nothing.
    """
    found = _numbers(answer_span(prediction))
    return float(
        len(found) == 1
        and any(is_amount(answer) and _numbers(answer) == found for answer in answers)
    )


def value_match(prediction: str, answers: tuple[str, ...]) -> float:
    """Score 1 if the final answer has an answer's value: numbers as numbers, lists in any order."""
    found = listed(answer_span(prediction))
    texts = [answer for answer in answers if not is_amount(answer)]
    return max(
        numeric_match(prediction, tuple(answer for answer in answers if is_amount(answer))),
        float(bool(found) and any(found == listed(answer) for answer in texts)),
    )


def _numbers(text: str) -> set[Decimal]:
    return {Decimal(token) for token in tokens(text) if plain_number(token)}

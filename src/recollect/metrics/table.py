"""The scores by name, for settings and for tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from recollect.errors import UserError
from recollect.metrics.answers import (
    Metric,
    boxed,
    boxed_exact_match,
    boxed_match,
    exact_match,
    final_answer,
    numeric_match,
    rouge_l,
    sub_exact_match,
    token_f1,
    value_match,
)
from recollect.metrics.locomo import locomo_f1, stemmed_f1
from recollect.metrics.ruler import ruler_any, ruler_recall
from recollect.types import Question

QuestionScore = Callable[[str, Question], float]
"""Score a model's whole reply to a question, in [0, 1]."""

METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "boxed_exact_match": boxed_exact_match,
        "boxed_match": boxed_match,
        "exact_match": exact_match,
        "sub_exact_match": sub_exact_match,
        "token_f1": token_f1,
        "value_match": value_match,
        "numeric_match": numeric_match,
        "rouge_l": rouge_l,
        "stemmed_f1": stemmed_f1,
        "ruler_recall": ruler_recall,
        "ruler_any": ruler_any,
    }
)
"""Text against accepted texts. `ruler_recall` alone asks for all of them, not for one."""


def find_metric(metric: str | Metric) -> Metric:
    """Return a metric by its name; a function is one already."""
    if not isinstance(metric, str):
        return metric
    if metric not in METRICS:
        raise UserError(f"there is no metric {metric!r}", f"choose from {', '.join(METRICS)}")
    return METRICS[metric]


def score_question(metric: Metric, reply: str, question: Question) -> float:
    """Score a reply by a metric; where all of several answers are asked for, one is not enough.

    Then the reply must match the list of them (in any order where a list is compared as a whole),
    or each of them by itself.
    """
    if not question.every or metric is ruler_recall:  # which counts all of them
        return metric(reply, question.answers)
    whole = (", ".join(question.answers),)
    if metric is exact_match:
        return value_match(reply, whole)
    if metric in (boxed_exact_match, boxed_match):
        end = reply[-300:]
        return value_match(end, whole) if boxed(end) is not None else 0.0
    return max(metric(reply, whole), min(metric(reply, (answer,)) for answer in question.answers))


def _of_reply(metric: Metric) -> QuestionScore:
    return lambda reply, question: metric(reply, _accepted(question))


def _of_answer(metric: Metric) -> QuestionScore:
    return lambda reply, question: metric(final_answer(reply), _accepted(question))


def _accepted(question: Question) -> tuple[str, ...]:
    """Return what counts as an answer: where all parts are asked for, one is not enough."""
    return (", ".join(question.answers),) if question.every else question.answers


def _exact(reply: str, question: Question) -> float:
    # Parts in any order: nobody says in which they are to come.
    metric = value_match if question.every else exact_match
    return metric(final_answer(reply), _accepted(question))


def _sub_exact(reply: str, question: Question) -> float:
    said = final_answer(reply)
    if question.every:
        return min(sub_exact_match(said, (answer,)) for answer in question.answers)
    return sub_exact_match(said, question.answers)


def _ruler(metric: Metric) -> QuestionScore:
    return lambda reply, question: metric(final_answer(reply), question.answers)


def _locomo(reply: str, question: Question) -> float:
    return locomo_f1(final_answer(reply), _accepted(question), question.category)


# These find the box themselves: the first where training found it, the others for its numbers.
_BOXED = ("boxed_exact_match", "boxed_match", "numeric_match", "value_match")

SCORES: Mapping[str, QuestionScore] = MappingProxyType(
    {
        **{n: (_of_reply if n in _BOXED else _of_answer)(m) for n, m in METRICS.items()},
        "exact_match": _exact,
        "sub_exact_match": _sub_exact,
        "ruler_recall": _ruler(ruler_recall),
        "ruler_any": _ruler(ruler_any),
        "locomo_f1": _locomo,
    }
)
"""What evaluation reports side by side. All but the boxed ones judge the reply's final answer."""

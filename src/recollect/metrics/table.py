"""The scores by name, for settings and for tables."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from recollect.errors import OwnMistake, UserError, place_of_function
from recollect.metrics import published
from recollect.metrics.answers import (
    Metric,
    boxed,
    boxed_exact_match,
    boxed_match,
    exact_match,
    rouge_l,
    sub_exact_match,
    token_f1,
)
from recollect.metrics.commitment import answer_match, bounded_sub_match
from recollect.metrics.locomo import locomo_f1, stemmed_f1
from recollect.metrics.overlap import answer_overlap, unanswerable
from recollect.metrics.ruler import ruler_any, ruler_recall
from recollect.metrics.spans import answer_span, answer_text, differ_by_yes_or_no, final_answer
from recollect.metrics.values import numeric_match, value_match
from recollect.types import Question

QuestionScore = Callable[[str, Question], float]
"""Score a model's whole reply to a question, in [0, 1]."""
SLIP = 1e-6
"""How far beyond 0 or 1 a sum of floats may go: a cosine of two equal vectors, say."""
AGAIN = 4
"""How often a metric of one's own is tried on one answer."""

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
    """Return a metric by its name; of a function of one's own, what it returns is checked."""
    if not isinstance(metric, str):
        return metric if metric in METRICS.values() else _checked(metric)
    if metric not in METRICS:
        raise UserError(f"there is no metric {metric!r}", f"choose from {', '.join(METRICS)}")
    return METRICS[metric]


def _checked(metric: Metric) -> Metric:
    """Refuse what is no share: it would spoil means and intervals without a word."""
    with suppress(ValueError):  # without a signature in Python: its own error tells
        _check_arguments(metric)

    def score(reply: str, answers: tuple[str, ...]) -> float:
        found: Any = metric(reply, answers)
        share = share_of(found)
        if math.isnan(share):
            what = f"the metric returned {found!r:.80}, not a number from 0 to 1"
            raise OwnMistake(what, place_of_function(metric))
        return share

    return score


def _check_arguments(metric: Metric) -> None:
    try:
        inspect.signature(metric).bind("prediction", ("answer",))
    except TypeError as error:
        where = place_of_function(metric) or f"{metric!r:.80}"
        raise UserError(
            f"{where}: the metric does not take (prediction, answers): {error}",
            "write `def name(prediction, answers)` that returns a number from 0 to 1",
        ) from None


def share_of(found: Any) -> float:
    """Return a value as a number from 0 to 1, or NaN; a sum of floats may be a hair beyond."""
    try:
        value = math.nan if isinstance(found, str | bytes) else float(found)
    except (TypeError, ValueError):
        return math.nan
    return min(max(value, 0.0), 1.0) if -SLIP <= value <= 1 + SLIP else math.nan


def find_score(metric: str | Metric) -> QuestionScore:
    """Return what scores a reply to a question: by name, or by a function of reply and answers."""
    if not isinstance(metric, str):
        # It is given the whole reply: what counts in it is for the metric to say.
        own = find_metric(metric)
        return lambda reply, question: score_question(own, reply, question)
    if metric not in SCORES:
        raise UserError(f"there is no metric {metric!r}", f"choose from {', '.join(SCORES)}")
    return SCORES[metric]


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


def check_repeats(score: QuestionScore, reply: str, question: Question, what: str) -> None:
    """Refuse a score that differs when the same answer is scored again."""
    found = {score(reply, question) for _ in range(AGAIN)}
    if len(found) > 1:
        raise UserError(
            f"{what} gives the same answer {min(found):.6g} and {max(found):.6g}",
            "let it depend on the answer and the accepted answers alone, not on chance, on the"
            " time or on the order of its calls",
        )


def _accepted(question: Question) -> tuple[str, ...]:
    """Return what counts as an answer: where all parts are asked for, one is not enough."""
    return (", ".join(question.answers),) if question.every else question.answers


def _of_reply(metric: Metric) -> QuestionScore:
    return lambda reply, question: metric(reply, _accepted(question))


def _shared(metric: Metric) -> QuestionScore:
    """Score shared words, but yes and no only as the whole answer."""

    def score(reply: str, question: Question) -> float:
        said = answer_text(reply)
        golds = tuple(a for a in _accepted(question) if not differ_by_yes_or_no(said, a))
        return metric(said, golds)

    return score


def _exact(reply: str, question: Question) -> float:
    # Parts in any order: nobody says in which they are to come.
    metric = value_match if question.every else exact_match
    return metric(answer_span(reply), _accepted(question))


def _as_published(metric: Metric) -> QuestionScore:
    return lambda reply, question: metric(final_answer(reply), question.answers)


def _locomo(reply: str, question: Question) -> float:
    return locomo_f1(final_answer(reply), _accepted(question), question.category)


def _babilong(reply: str, question: Question) -> float:
    return published.babilong_match(final_answer(reply), question)


PUBLISHED: Mapping[str, QuestionScore] = MappingProxyType(
    {
        "hotpotqa_em": _as_published(published.hotpotqa_em),
        "hotpotqa_f1": _as_published(published.hotpotqa_f1),
        "squad_em": _as_published(published.squad_em),
        "squad_f1": _as_published(published.squad_f1),
        "memagent_sub_em": _as_published(published.memagent_sub_em),
        "ruler_recall": _as_published(ruler_recall),
        "ruler_any": _as_published(ruler_any),
        "babilong_match": _babilong,
        "locomo_f1": _locomo,
    }
)
"""Benchmarks' own scores of the final answer, to compare with published figures."""

SCORES: Mapping[str, QuestionScore] = MappingProxyType(
    {
        "answer_match": answer_match,
        "answer_overlap": answer_overlap,
        "exact_match": _exact,
        "sub_exact_match": bounded_sub_match,
        "token_f1": _shared(token_f1),
        "stemmed_f1": _shared(stemmed_f1),
        "rouge_l": _shared(rouge_l),
        # These find the box themselves: the first where training found it, the others for numbers.
        "boxed_exact_match": _of_reply(boxed_exact_match),
        "boxed_match": _of_reply(boxed_match),
        "numeric_match": _of_reply(numeric_match),
        "value_match": _of_reply(value_match),
        **PUBLISHED,
    }
)
"""What evaluation can report. All but the boxed ones judge the reply's final answer."""


def never_right(metric: object, questions: Sequence[Question]) -> str:
    """Return the text of a question that no reply could answer rightly by a metric of ours."""
    if not isinstance(metric, str) or metric not in SCORES:
        return ""
    empty = metric in PUBLISHED  # SQuAD's own score accepts an empty reply
    for question in questions:
        accepted = any(empty or answer.strip() for answer in question.answers)
        if not accepted and not unanswerable(question):
            return question.text
    return ""

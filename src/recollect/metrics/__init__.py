"""Scores for answers, and how sure we are of their means.

Pure functions; knows nothing of episodes, models or files.
"""

from recollect.metrics.answers import (
    Metric,
    boxed,
    boxed_exact_match,
    boxed_match,
    exact_match,
    final_answer,
    normalise,
    numeric_match,
    rouge_l,
    sub_exact_match,
    token_f1,
    value_match,
)
from recollect.metrics.locomo import abstains, locomo_f1, stemmed_f1
from recollect.metrics.ruler import ruler_any, ruler_recall
from recollect.metrics.statistics import bootstrap_interval, paired_p_value, wilson
from recollect.metrics.table import METRICS, SCORES, QuestionScore, find_metric, score_question

__all__ = [
    "METRICS",
    "SCORES",
    "Metric",
    "QuestionScore",
    "abstains",
    "bootstrap_interval",
    "boxed",
    "boxed_exact_match",
    "boxed_match",
    "exact_match",
    "final_answer",
    "find_metric",
    "locomo_f1",
    "normalise",
    "numeric_match",
    "paired_p_value",
    "rouge_l",
    "ruler_any",
    "ruler_recall",
    "score_question",
    "stemmed_f1",
    "sub_exact_match",
    "token_f1",
    "value_match",
    "wilson",
]

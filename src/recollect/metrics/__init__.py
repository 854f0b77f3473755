"""Scores for answers, and how sure we are of their means.

Pure functions; knows nothing of episodes, models or files.
"""

from recollect.metrics.answers import (
    Metric,
    boxed,
    boxed_exact_match,
    boxed_match,
    exact_match,
    normalise,
    rouge_l,
    sub_exact_match,
    token_f1,
)
from recollect.metrics.commitment import answer_match
from recollect.metrics.locomo import abstains, locomo_f1, stemmed_f1
from recollect.metrics.overlap import answer_overlap, unanswerable
from recollect.metrics.pairs import holm, paired_p_value
from recollect.metrics.ruler import ruler_any, ruler_recall
from recollect.metrics.spans import answer_span, final_answer
from recollect.metrics.statistics import (
    Interval,
    cluster_scores,
    mean_interval,
    score_interval,
    share_interval,
    wilson,
)
from recollect.metrics.table import (
    METRICS,
    PUBLISHED,
    SCORES,
    QuestionScore,
    check_repeats,
    find_metric,
    find_score,
    never_right,
    score_question,
    share_of,
)
from recollect.metrics.values import numeric_match, value_match

__all__ = [
    "METRICS",
    "PUBLISHED",
    "SCORES",
    "Interval",
    "Metric",
    "QuestionScore",
    "abstains",
    "answer_match",
    "answer_overlap",
    "answer_span",
    "boxed",
    "boxed_exact_match",
    "boxed_match",
    "check_repeats",
    "cluster_scores",
    "exact_match",
    "final_answer",
    "find_metric",
    "find_score",
    "holm",
    "locomo_f1",
    "mean_interval",
    "never_right",
    "normalise",
    "numeric_match",
    "paired_p_value",
    "rouge_l",
    "ruler_any",
    "ruler_recall",
    "score_interval",
    "score_question",
    "share_interval",
    "share_of",
    "stemmed_f1",
    "sub_exact_match",
    "token_f1",
    "unanswerable",
    "value_match",
    "wilson",
]

"""Shared words over the longer of two texts, and the questions that nothing in the text answers.

F1 pays for naming two candidates: with one word each, the right one earns 2/3. Divided by the
longer text it earns 1/2, which is what guessing one of them earns. Words of the question and small
words earn nothing: to repeat the question is no answer.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from recollect.metrics.commitment import SMALL
from recollect.metrics.locomo import ADVERSARIAL, OPEN_DOMAIN, chooses, stems
from recollect.metrics.spans import answer_text, differ_by_yes_or_no
from recollect.types import Question

ABSTENTION = "abstention"
UNANSWERABLE = frozenset({ABSTENTION, ADVERSARIAL})
"""Categories of questions that are answered right by saying that the text does not tell."""

_NOT_TOLD = re.compile(
    r"\b(?:no|not|never|cannot|can't|n't|lacks?)\b[^.;]{0,40}?\b(?:information|mention\w*|specif\w*"
    r"|stated?|says?|said|tells?|told|know\w*|provid\w*|discuss\w*|given|indicat\w*|determin\w*"
    r"|answer\w*|available|record\w*|details?|clear|idea|contain\w*|include\w*|enough)\b"
    r"|\b(?:unknown|unanswerable|unclear)\b",
    re.IGNORECASE,
)


def unanswerable(question: Question) -> bool:
    """Tell whether the right answer is that the text does not tell."""
    return question.category in UNANSWERABLE


def declines(said: str) -> bool:
    """Tell whether an answer says that it is not in the text, or not known."""
    return _NOT_TOLD.search(said.replace("\u2019", "'").replace("n't", " n't")) is not None


def answer_overlap(reply: str, question: Question) -> float:
    """Score the stemmed words shared with an answer, over the longer of the two.

    Words that an answer shares with its question count only if it has no others. Yes and no are
    right only alone. An unanswerable question is answered right by saying so.
    """
    said = answer_text(reply)
    if unanswerable(question):
        return float(declines(said) or chooses(said, question.answers))
    answers = (", ".join(question.answers),) if question.every else question.answers
    if question.category == OPEN_DOMAIN:  # LoCoMo gives its reasons after a semicolon
        answers = tuple(answer.partition(";")[0] for answer in answers)
    asked = frozenset(_stems(question.text)) | _SMALL_STEMS
    return max((_overlap(said, answer, asked) for answer in answers), default=0.0)


def _overlap(said: str, answer: str, asked: frozenset[str]) -> float:
    if differ_by_yes_or_no(said, answer):
        return 0.0
    found, gold = _stems(said), _stems(answer)
    if any(word not in asked for word in gold):
        found, gold = _without(found, asked), _without(gold, asked)
    common = (found & gold).total()
    return common / max(found.total(), gold.total()) if common else 0.0


def _without(words: Counter[str], asked: frozenset[str]) -> Counter[str]:
    return Counter({word: n for word, n in words.items() if word not in asked})


_stems = lru_cache(4096)(stems)
_SMALL_STEMS = frozenset(_stems(" ".join(SMALL)))

"""LoCoMo's score: F1 over stemmed words, with a rule for every category of question.

Multi-hop answers are lists parted by commas, open-domain answers end at a semicolon, and an
adversarial question is answered right by saying that the conversation does not tell.
"""

from __future__ import annotations

import re
from collections import Counter

from recollect.metrics.answers import f1, normalise
from recollect.metrics.stemmer import stem

MULTI_HOP, OPEN_DOMAIN, ADVERSARIAL = "multi-hop", "open-domain", "adversarial"

_ABSTENTIONS = ("no information available", "not mentioned")
_AND = re.compile(r"\band\b")
_CHOICE = re.compile(r"\W*(?:option|answer|choice)?\W*\b([ab])\b\W*", re.IGNORECASE)


def stemmed_f1(prediction: str, answers: tuple[str, ...]) -> float:
    """Score the overlap of stemmed words; "and" counts as little as the articles."""
    found = stems(prediction)
    return max((_overlap(found, stems(answer)) for answer in answers), default=0.0)


def locomo_f1(prediction: str, answers: tuple[str, ...], category: str) -> float:
    """Score an answer as its category asks."""
    if category == ADVERSARIAL:
        return float(abstains(prediction) or chooses(prediction, answers))
    if category == MULTI_HOP:
        return max((_listed(prediction, answer) for answer in answers), default=0.0)
    if category == OPEN_DOMAIN:
        answers = tuple(answer.partition(";")[0] for answer in answers)
    return stemmed_f1(prediction, answers)


def abstains(prediction: str) -> bool:
    """Tell whether an answer says that the conversation does not hold it."""
    said = prediction.lower()
    return any(words in said for words in _ABSTENTIONS)


def chooses(prediction: str, answers: tuple[str, ...]) -> bool:
    """Tell whether a reply names nothing but the letter of a choice that is accepted."""
    chosen = _CHOICE.fullmatch(prediction)
    accepted = {match[1].lower() for match in map(_CHOICE.fullmatch, answers) if match}
    return chosen is not None and chosen[1].lower() in accepted


def _listed(prediction: str, answer: str) -> float:
    """Find for every part of the answer the part of the prediction that fits best."""
    found = [stems(part) for part in prediction.split(",")]
    golds = [stems(part) for part in answer.split(",")]
    return sum(max(_overlap(part, gold) for part in found) for gold in golds) / len(golds)


def stems(text: str) -> Counter[str]:
    """Count the stems of a text's words, as LoCoMo normalises them."""
    return Counter(stem(word, extended=True) for word in _AND.sub(" ", normalise(text)).split())


def _overlap(found: Counter[str], gold: Counter[str]) -> float:
    return f1((found & gold).total(), found.total(), gold.total())

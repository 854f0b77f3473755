"""Benchmarks' own scores, by the rules of their published code, quirks included.

They are here to compare with published figures, not to be trusted: most of them can be won by
naming every candidate. `commitment` has the scores that our tables are led by.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from recollect.metrics.answers import f1
from recollect.metrics.spans import YES_NO
from recollect.types import Question

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad_em(prediction: str, answers: tuple[str, ...]) -> float:
    """SQuAD and MuSiQue: 1 if the prediction equals an answer after normalisation."""
    return float(any(_normal(prediction) == _normal(answer) for answer in answers))


def squad_f1(prediction: str, answers: tuple[str, ...]) -> float:
    """SQuAD and MuSiQue: the best F1 of words over the answers; nothing equals nothing."""
    found = _normal(prediction).split()
    golds = [_normal(answer).split() for answer in answers]
    return max(
        (_f1(found, gold) if found and gold else float(found == gold) for gold in golds),
        default=0.0,
    )


def hotpotqa_em(prediction: str, answers: tuple[str, ...]) -> float:
    """HotpotQA and 2WikiMultihopQA: exact match, which is SQuAD's."""
    return squad_em(prediction, answers)


def hotpotqa_f1(prediction: str, answers: tuple[str, ...]) -> float:
    """HotpotQA and 2WikiMultihopQA: F1 of words; yes, no and noanswer only as the whole answer."""
    found = _normal(prediction)
    best = 0.0
    for gold in map(_normal, answers):
        if found == gold or not (found in YES_NO or gold in YES_NO):
            best = max(best, _f1(found.split(), gold.split()))
    return best


def memagent_sub_em(prediction: str, answers: tuple[str, ...]) -> float:
    """MemAgent's evaluation: the first answer is part of the prediction, or the other way round.

    A prediction of which nothing is left ("the") is part of everything; an empty one is wrong.
    """
    if not prediction or not answers:
        return 0.0
    found, gold = _normal(prediction), _normal(answers[0])
    return float(gold in found or found in gold)


def _normal(text: str) -> str:
    """SQuAD's normalisation, which knows no punctuation but ASCII's."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _f1(found: list[str], gold: list[str]) -> float:
    return f1((Counter(found) & Counter(gold)).total(), len(found), len(gold))


_ROOMS = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
_ROUTES = ("e,e", "e,n", "e,s", "n,e", "n,n", "n,w", "s,e", "s,s", "s,w", "w,n", "w,s", "w,w")
BABILONG_LABELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("qa1", "qa2", "qa3", "qa4", "qa11", "qa12", "qa13"), _ROOMS),
        "qa5": ("bill", "fred", "jeff", "mary", "apple", "football", "milk"),
        **dict.fromkeys(("qa6", "qa9", "qa17", "qa18"), ("no", "yes")),
        "qa7": ("none", "one", "three", "two"),
        "qa8": ("apple", "football", "milk", "nothing"),
        "qa10": ("maybe", "no", "yes"),
        "qa14": ("bedroom", "cinema", "kitchen", "office", "park", "school"),
        "qa15": ("cat", "mouse", "sheep", "wolf"),
        "qa16": ("gray", "green", "white", "yellow"),
        "qa19": _ROUTES,
        "qa20": ("bedroom", "bored", "garden", "hungry", "kitchen", "thirsty", "tired"),
    }
)
"""Every answer that a task of bAbI has."""


def babilong_match(prediction: str, question: Question) -> float:
    """BABILong: of all possible answers, the first sentence names the right one and no other.

    Those that the question names do not count. Answers are looked for as substrings.
    """
    labels = BABILONG_LABELS.get(question.category, ())
    # How to answer is told after the question, and may name answers: it is no part of it.
    asked = question.text.lower().partition(" answer with ")[0]
    said = prediction.lower().partition(".")[0]
    said = said.partition("<context>")[0].partition("<example>")[0]
    named = {label for label in labels if label in said and label not in asked}
    return float(any(named == wanted for wanted in _wanted(question, labels)))


def _wanted(question: Question, labels: tuple[str, ...]) -> list[set[str]]:
    """Return the answer as labels: the one that it is, or several between commas."""
    wanted = []
    for answer in (text.lower().replace(", ", ",") for text in question.answers):
        parts = {answer} if answer in labels else set(answer.split(","))
        wanted += [parts] if parts <= set(labels) else []
    return wanted

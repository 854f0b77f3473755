"""Whether a reply commits itself to an accepted answer: the scores that our tables are led by.

All that a final answer adds to its question must be the answer. A list of candidates, "X or Y",
"not X" or the whole text adds more, so none of them is right, whatever else they hold. Words of the
question and small words may surround the answer: "Maria's latest fruit is mango".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache

from recollect.metrics.answers import is_amount, listed, normalise, plain_number, tokens
from recollect.metrics.spans import YES_NO, answer_span
from recollect.types import Question

Units = tuple[str, ...]
"""A text as words and numbers."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


HEDGES = _words(
    "not no never nor neither none nothing nobody or either else except unless without but instead"
    " rather unlike other than maybe perhaps possibly might could cannot cant dont doesnt didnt"
    " isnt wasnt arent werent wont wouldnt couldnt shouldnt hasnt havent hadnt aint unknown unsure"
    " uncertain versus vs any every whichever whatever wrong false incorrect untrue mistaken nope"
    " hardly"
)
"""Words that take an answer back or offer another one; no question makes them harmless."""
RANGES = _words("least most more less above below under over between up fewer")
"""Around a number they turn it into a range."""
_COUNTS = _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"
    " hundred thousand million dozen"
)
SMALL = _words(
    "a an the i you he she it we they me him her us them my your his its our their this that these"
    " those there here is are was were be been being am has have had do does did will would of in"
    " on at to from by for with as into about and so thus therefore hence who whom whose which what"
    " when where why how answer final correct think believe called named known according based"
    " text memory context passage document documents story conversation"
)
"""Words that are no answer by themselves and may surround one."""


ROOM = 8
"""Words that may accompany a number, besides those of the question: "I spent 5.00 at a shop"."""


def answer_match(reply: str, question: Question) -> float:
    """Score 1 if the final answer is an accepted answer and adds nothing else to the question.

    Where all answers are asked for, all must be named, and hardly more: one other for every five.
    """
    return _committed(reply, question, extra=False)


def bounded_sub_match(reply: str, question: Question) -> float:
    """Score as `answer_match`, but let the answer bring as many words again: "Ghent, Belgium"."""
    return _committed(reply, question, extra=True)


def _committed(reply: str, question: Question, *, extra: bool) -> float:
    span = _span(reply)
    if question.every:
        return float(_names_all(span, question))
    return float(any(_settles(span, answer, question.text, extra) for answer in question.answers))


def _settles(span: str, answer: str, asked: str, extra: bool) -> bool:
    gold, said = _units(answer), _units(span)
    if not gold or not _normal(answer):
        return False
    # Not for numbers: without punctuation "-3" would be 3, and "3-4" would be 34.
    if said == gold or (_normal(span) == _normal(answer) and not is_amount(answer)):
        return True
    items = _items(answer)
    if len(items) > 1 and _items(span) == items:
        return True
    if all(word in SMALL or word in HEDGES or word in YES_NO for word in gold):
        return False  # such words are in any sentence: only alone are they an answer
    rest = _around(said, (gold,))
    if rest is None:
        return False
    known = _known(asked, (gold,))
    added = [word for word in rest if word not in known]
    if is_amount(answer):
        numbers = (word in RANGES or word in _COUNTS or plain_number(word) for word in added)
        return len(added) <= ROOM and HEDGES.isdisjoint(added) and not any(numbers)
    return not added or (extra and len(added) <= len(gold) and HEDGES.isdisjoint(added))


def _names_all(span: str, question: Question) -> bool:
    golds = tuple(gold for gold in map(_units, question.answers) if gold)
    said = _units(span)
    if not golds or any(_around(said, (gold,)) is None for gold in golds):
        return False
    rest, known = _around(said, golds) or [], _known(question.text, golds)
    added = {word for word in rest if word not in known}
    # Counted in answers, each of which may have several words.
    most = len(golds) // 5 * max(map(len, golds))
    return len(added) <= most and HEDGES.isdisjoint(added)


def _known(asked: str, golds: Sequence[Units]) -> frozenset[str]:
    """Return the words that add nothing: small ones, and the question's if it names no answer.

    Where it does ("Which is older, A or B?"), its words are candidates.
    """
    words = _units(asked)
    named = any(_around(words, (gold,)) is not None for gold in golds)
    return (SMALL if named else SMALL.union(words)) - HEDGES


def _around(said: Units, golds: Sequence[Units]) -> list[str] | None:
    """Return the words outside of all runs of the golds; None where there is no such run."""
    covered = {
        at + i
        for gold in golds
        for at in range(len(said) - len(gold) + 1)
        if said[at] == gold[0] and said[at : at + len(gold)] == gold
        for i in range(len(gold))
    }
    if not covered:
        return None
    return [word for at, word in enumerate(said) if at not in covered]


# A family asks about the same candidates again and again.
_normal = lru_cache(4096)(normalise)
_items = lru_cache(4096)(listed)
_span = lru_cache(64)(answer_span)  # of replies, which may be long


@lru_cache(4096)
def _units(text: str) -> Units:
    """Split into words, and numbers by their value: "5" is "5.00", but "007" is a name."""
    return tuple(_values(text))


def _values(text: str) -> Iterator[str]:
    for token in tokens(text):
        if token.isalpha():  # most are
            yield token
        elif plain_number(token) and not re.match(r"[-+]?0\d", token):
            yield format(Decimal(token).normalize() + 0, "f")
        elif any(char.isalnum() for char in token):
            yield token

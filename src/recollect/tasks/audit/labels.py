"""Does what an agent is shown beside the text name the answer: the id, the meta, the category?

Answers are found by their words. What other questions' answers are found there tells how often one
is by chance. Knows nothing of the text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from recollect.tasks.base import GOLD
from recollect.types import Question, Task

SAME = 0.9
"""The share of questions with one answer from which on there is nothing to measure."""
_LEAST = 10
"""Questions; among fewer, all may have one answer by chance."""
_WORD = re.compile(r"[^\W_]+")
_CHOICE = re.compile(r"\bor\b(?!\s+not\b)|\b(?:between|both|which of)\b", re.IGNORECASE)
"""A question that lists what can be chosen names the answer for good reason."""

Phrase = tuple[str, ...]
Figures = dict[tuple[str, str], list[tuple[int, float, float]]]
"""By group and rule: the task, the score and the chance of every question."""


def label_scores(tasks: Sequence[Task], candidates: Iterable[str] = ()) -> Figures:
    """Score taking the answer from a label that names one; a list of candidates names several."""
    asked = [(i, task, q) for i, task in enumerate(tasks) for q in task.questions if q.answers]
    counts = Counter(_phrase(question.answers[0]) for _, _, question in asked)
    known = {_phrase(answer) for _, _, question in asked for answer in question.answers}
    known.update(map(_phrase, candidates))
    longest = max(map(len, known), default=0)
    found: Figures = {}
    for number, task, question in asked:
        right = {_phrase(answer) for answer in question.answers} - {()}
        for label, texts in _labels(task, question).items():
            score = chance = 0.0
            for text in texts:
                named = _named(text, known, longest)
                if label == "question":  # which may name what only it is about
                    named = {p for p in named if counts[p] > 1 and not _CHOICE.search(text)}
                if len(named) > 1 and not named <= right:
                    continue
                score = max(score, float(bool(named & right)))
                others = sum(counts[p] for p in named) - (_phrase(question.answers[0]) in named)
                chance += others / max(1, len(asked) - 1)
            figures = (number, score, min(1.0, chance))
            found.setdefault(("label", f"an answer in the {label}"), []).append(figures)
    return {rule: rows for rule, rows in found.items() if any(score for _, score, _ in rows)}


def same_answer(tasks: Sequence[Task]) -> tuple[str, float]:
    """Return the answer that most questions have and their share, where it is nearly all of them.

    Otherwise an empty text.
    """
    golds = [q.answers[0] for task in tasks for q in task.questions if q.answers]
    counts = Counter(map(_phrase, golds))
    phrase, most = counts.most_common(1)[0] if counts else ((), 0)
    if len(golds) < _LEAST or most < SAME * len(golds):
        return "", 0.0
    return next(gold for gold in golds if _phrase(gold) == phrase), most / len(golds)


def _labels(task: Task, question: Question) -> dict[str, list[str]]:
    """Return what is shown, of the meta one text for every name in it."""
    meta = (value for name, value in task.meta.items() if name not in GOLD)
    return {
        "id": [task.id],
        "meta": [" | ".join(_values(value)) for value in meta],
        "category": [question.category],
        "question": [question.text],
    }


def _values(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _values(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _values(inner)
    else:
        yield str(value)


def _phrase(text: str) -> Phrase:
    return tuple(_WORD.findall(text.casefold()))


def _named(text: str, phrases: set[Phrase], longest: int) -> set[Phrase]:
    words = _phrase(text)
    spans = ((i, size) for i in range(len(words)) for size in range(1, longest + 1))
    named = {words[i : i + size] for i, size in spans} & phrases
    return {p for p in named if not any(p != q and set(p) <= set(q) for q in named)}

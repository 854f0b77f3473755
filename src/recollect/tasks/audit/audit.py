"""Does a family leak? What rules score that do not understand its texts, beside a guess.

A rule may look at everything but the question; some are given the kind of answer that is asked for,
and some the question's words. A sound family leaves all of the first two at what a guess scores.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recollect.metrics import find_score, wilson
from recollect.tasks.audit.features import (
    ORDER_FREE,
    Column,
    MarkedText,
    document_features,
    value_features,
)
from recollect.tasks.audit.guesses import Finder, Guessable, Mention, split_words
from recollect.tasks.audit.labels import label_scores
from recollect.tasks.audit.rules import Candidates, WordIndex, best, pick_scores, probe_scores
from recollect.tasks.audit.shared import SharedAnswers
from recollect.tasks.base import TaskFamily
from recollect.types import Question, Task

BLIND = ("value", "kind", "document", "label")
"""Groups of rules that must score what a guess does: without the question, or with its kind."""
_FEW = 1.5
"""With fewer possible answers in a text, on average, there is nothing to choose from."""
_SENTENCES = re.compile(r"[^.!?\n]+[.!?]*")


@dataclass(frozen=True)
class RuleScore:
    """What a rule scores on a family."""

    group: str
    """value, kind and document do not read the question; label reads what is shown beside the text,
    words the question's words; reply is a reply that is the same for every question."""
    rule: str
    n: int
    """Questions."""
    score: float
    low: float
    high: float
    chance: float
    """What a guess among the same choices scores."""
    sure: bool
    """Whether chance alone would hardly give such a score, with as many rules tried."""

    @property
    def excess(self) -> float:
        """How much better than a guess it is."""
        return self.score - self.chance


@dataclass(frozen=True)
class _Seen:
    """Everything the rules may pick from, and the scores of rules that are no picks."""

    value: list[Candidates]
    asked: list[Candidates]
    """The values that the documents of a text are asked for, here or elsewhere."""
    kind: list[Candidates]
    document: list[Candidates]
    closed: bool
    """Whether answers come from a list: a family knows it, or most are given more than once."""
    scored: dict[tuple[str, str], list[tuple[int, float, float]]]
    """By group and rule: the task, the score and the chance of every question."""

    @property
    def possible(self) -> list[Candidates]:
        """The values that rules choose from: where texts share documents, the asked ones alone.

        None where answers are free words: the answers to other questions that happen to occur in a
        text are mostly short, and nobody could be asked for them there.
        """
        if np.mean([len(choice.right) for choice in self.asked] or [0]) >= _FEW:
            return [choice for choice in self.asked if len(choice.right) > 1]
        return self.value if self.closed else []


def audit_rules(family: TaskFamily, tasks: Sequence[Task]) -> list[RuleScore]:
    """Try all rules on some tasks."""
    seen = _look(family, tasks)
    seen.scored.update(label_scores(tasks, _phrases(family, tasks)))
    groups = {
        "value": (seen.possible, None),
        "kind": (seen.kind, ORDER_FREE),
        "document": (seen.document, None),
    }
    tried = [
        (group, choices, [f for f in choices[0].features if allowed is None or f in allowed])
        for group, (choices, allowed) in groups.items()
        if choices and np.mean([len(choice.right) for choice in choices]) >= _FEW
    ]
    count = sum(4 * len(features) + 1 for _, _, features in tried) + len(seen.scored)
    rows = []
    for group, choices, features in tried:
        guesses = [(choice.task, choice.chance) for choice in choices]
        for pick, scores in pick_scores(choices, features):
            figures = [(t, score, g) for (t, g), score in zip(guesses, scores, strict=True)]
            rows.append(_row(group, pick.name, figures, count))
        found = probe_scores(choices, features)
        figures = [(choices[i].task, score, choices[i].chance) for i, score in found.items()]
        if figures:
            rows.append(_row(group, "all features, fitted", figures, count))
    return rows + [_row(*key, figures, count) for key, figures in seen.scored.items()]


def _look(family: TaskFamily, tasks: Sequence[Task]) -> _Seen:
    finder = Finder(_phrases(family, tasks))
    golds = [q.answers[0] for task in tasks for q in task.questions if q.answers]
    closed = isinstance(family, Guessable) or len(golds) >= 2 * len(set(golds))
    seen = _Seen([], [], [], [], closed, {})
    shared = None if isinstance(family, Guessable) else SharedAnswers(tasks)
    constant = _most_common(tasks)
    for number, task in enumerate(tasks):
        views: dict[int, _View] = {}
        for question in task.questions:
            end = len(task.chunks) if question.position is None else question.position + 1
            if end not in views:
                views[end] = _View.of(list(task.chunks[:end]), finder, shared)
            _add(seen, family, number, task, question, views[end], finder)
            if constant and number % 2:
                guess = 1 / max(1, len(finder.phrases))
                _score(seen, "most common answer", number, question, constant, guess, family)
    return seen


@dataclass(frozen=True)
class _View:
    """A text up to where a question is asked, with all that rules look at."""

    chunks: list[str]
    reading: MarkedText
    values: Mapping[str, Column]
    documents: Mapping[str, Column]
    index: WordIndex
    spans: list[tuple[int, int, int]]
    """The chunk, the start and the end of every sentence."""
    sentences: WordIndex
    asked: frozenset[tuple[str, ...]]
    """Answers to questions about these chunks, here or in another text."""

    @classmethod
    def of(cls, chunks: list[str], finder: Finder, shared: SharedAnswers | None) -> _View:
        reading = MarkedText(chunks, finder.find(chunks))
        values = value_features(reading, finder.phrases) if reading.values else {}
        spans = [
            (c, found.start(), found.end())
            for c, text in enumerate(chunks)
            for found in _SENTENCES.finditer(text)
        ]
        sentences = WordIndex([chunks[c][start:end] for c, start, end in spans])
        documents = document_features(chunks)
        asked = shared.among(chunks) if shared else frozenset[tuple[str, ...]]()
        index = WordIndex(chunks)
        return cls(chunks, reading, values, documents, index, spans, sentences, asked)


def _add(
    seen: _Seen, family: TaskFamily, number: int, task: Task, question: Question, view: _View,
    finder: Finder,
) -> None:  # fmt: skip
    accepted = {split_words(answer) for answer in question.answers}
    held = [split_words(finder.phrases[v]) for v in view.reading.values]
    right = np.array([phrase in accepted for phrase in held], bool)
    allowed, known = np.ones(len(right), bool), 0.0
    if isinstance(family, Guessable):
        of_kind = {split_words(guess) for guess in family.guesses(task, question)}
        known = len(of_kind & accepted) / max(1, len(of_kind))
        allowed = np.array([phrase in of_kind for phrase in held], bool)
        if allowed.any():
            seen.kind.append(Candidates(number, view.values, right).only(allowed))
    if len(right):
        seen.value.append(Candidates(number, view.values, right, known))
        asked = np.array([phrase in view.asked for phrase in held], bool)
        seen.asked.append(seen.value[-1].only(asked))
    if question.evidence and len(view.chunks) > 1:
        marked = np.isin(np.arange(len(view.chunks)), question.evidence)
        seen.document.append(Candidates(number, view.documents, marked))
        found = list(best(view.index.scores(question.text)))
        figure = float(marked[found].mean())
        _keep(seen, "words", "BM25 top-1 finds the document", number, figure, marked.mean())
    if allowed.any():
        chance = float(right[allowed].mean())
        by_value = dict(zip(view.reading.values, right & allowed, strict=True))
        kinds = dict(zip(view.reading.values, allowed, strict=True))
        for rule, told in _read_best(question, view):
            figures = [by_value[m.value] for m in told if kinds[m.value]]
            score = float(np.mean(figures)) if figures else chance
            _keep(seen, "words", rule, number, score, chance)
        if question is not task.questions[0]:
            return  # one reply per text: a long one takes a while to score
        listed = ", ".join(finder.phrases[v] for v, ok in kinds.items() if ok)
        _score(seen, "all possible answers", number, question, listed, chance, family)
        _score(seen, "the whole text", number, question, "\n\n".join(view.chunks), chance, family)


def _read_best(question: Question, view: _View) -> Iterable[tuple[str, list[Mention]]]:
    """Return the mentions in what the question's words find: a chunk, or a sentence."""
    chunk = next(best(view.index.scores(question.text)))
    yield "BM25 top-1, a value in the chunk", view.reading.by_chunk[chunk]
    if view.spans:
        c, start, end = view.spans[next(best(view.sentences.scores(question.text)))]
        inside = [m for m in view.reading.by_chunk[c] if start <= m.at < end]
        yield "BM25 top-1, a value in the sentence", inside


def _score(
    seen: _Seen, rule: str, number: int, question: Question, reply: str, chance: float,
    family: TaskFamily,
) -> None:  # fmt: skip
    if family.metric != "judge":  # nobody judges here
        score = find_score(family.metric)(reply, question)
        _keep(seen, "reply", rule, number, score, chance)


def _keep(seen: _Seen, group: str, rule: str, number: int, score: float, chance: float) -> None:
    seen.scored.setdefault((group, rule), []).append((number, score, float(chance)))


def _phrases(family: TaskFamily, tasks: Sequence[Task]) -> list[str]:
    found: dict[str, None] = {}
    for task in tasks:
        found.update(dict.fromkeys(q.answers[0] for q in task.questions if q.answers))
        if isinstance(family, Guessable):
            found.update(dict.fromkeys(family.guesses(task)))
    return list(found)


def _most_common(tasks: Sequence[Task]) -> str:
    """Return the answer that is right most often in every other task."""
    counts = Counter(
        question.answers[0]
        for task in tasks[::2]
        for question in task.questions
        if question.answers
    )
    return counts.most_common(1)[0][0] if counts else ""


def _row(
    group: str, rule: str, figures: Sequence[tuple[int, float, float]], tried: int
) -> RuleScore:
    """Sum up a rule's scores; questions of one task share its luck, so tasks are counted."""
    by_task: dict[int, list[float]] = {}
    for task, score, _ in figures:
        by_task.setdefault(task, []).append(score)
    n = len(by_task)
    score = sum(score for _, score, _ in figures) / len(figures)
    chance = sum(chance for _, _, chance in figures) / len(figures)
    low, high = wilson(score * n, n)
    # 5% for all rules together: with a hundred of them five would look like leaks.
    sure = binomial_tail(math.floor(score * n), n, chance) < 0.05 / tried
    return RuleScore(group, rule, len(figures), score, low, high, chance, sure)


def binomial_tail(hits: int, n: int, chance: float) -> float:
    """Return how likely a guess is right at least `hits` times out of n."""
    if hits <= 0 or chance >= 1:
        return 1.0
    if chance <= 0:
        return 0.0
    odds, rest = math.log(chance), math.log1p(-chance)
    whole = math.lgamma(n + 1)
    return math.fsum(
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * odds + (n - k) * rest)
        for k in range(hits, n + 1)
    )

"""Stored answers to scores: all metrics side by side, a failed episode scoring 0 in each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from typing import Any

from recollect.config.modules import is_named
from recollect.config.parts import metric_named
from recollect.errors import UserError, place_of
from recollect.evaluation.records import Record, questions
from recollect.metrics import SCORES, QuestionScore, check_repeats, find_score, unanswerable
from recollect.types import Question

JUDGE = "judge"
JUDGED = (JUDGE, "longmemeval_judge", "beam_judge")
"""Scores that need a judge."""
OURS = (
    "answer_match",
    "answer_overlap",
    "exact_match",
    "sub_exact_match",
    "token_f1",
    "rouge_l",
    "boxed_exact_match",
)
"""What is reported of every family, beside the published scores of its benchmark."""

UNJUDGED = "answer_overlap"
"""Counts first where a family is usually judged, but nobody judges."""

LONGEST = 4000
"""Characters of an answer that are scored, its last ones: nobody is to list every candidate."""

Verdicts = Mapping[tuple[str, int, str], float]
"""What a judge's verdicts come to, by episode id, number of the question, and score."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One answer with its scores."""

    task: str
    agent: str
    seed: int
    index: int
    question: int
    item: str
    """Names the task, or what is asked where every seed asks the same (HotpotQA's questions, among
    other documents each time)."""
    cluster: str
    """Answers of one cluster share its luck: they are no independent draws."""
    failed: bool
    scores: tuple[float, ...]
    """In the order of the metrics asked for."""
    axes: tuple[tuple[str, str], ...]
    unanswerable: bool = False
    """Whether giving up answers it, so that it is no part of the headline."""
    text: str = ""
    """A hash of what is read and asked: tasks with the same one are copies."""

    @property
    def unit(self) -> str:
        """What is asked, whatever the seed."""
        return f"{self.item}#{self.question}"

    @property
    def key(self) -> tuple[str, int, int, int]:
        """Answers of two agents with the same key can be compared."""
        return self.item, self.seed, self.index, self.question


def metrics_of(known: Mapping[str, Any], asked: Sequence[str], judged: bool) -> list[str]:
    """Name the scores of a task set, whatever else is asked for: its own and the published ones."""
    own = [*(asked or OURS), *([JUDGE] if judged else [])]
    own += [first_metric(known["primary"], judged), *known.get("published", ())]
    return [name for name in dict.fromkeys(own) if judged or name not in JUDGED]


def first_metric(family_metric: str, judged: bool) -> str:
    """Return the metric that counts first; a judge's word can only count where there is one."""
    return UNJUDGED if family_metric == JUDGE and not judged else family_metric


def check_metrics(names: Iterable[str]) -> None:
    """Refuse what is no metric."""
    for name in names:
        if name not in JUDGED:
            score_named(name)


@lru_cache
def score_named(name: str) -> QuestionScore:
    """Return a score by its name: one of ours, or a user's function as module:Name."""
    if name in SCORES:
        return SCORES[name]
    if not is_named(name):
        raise UserError(
            f"there is no metric {name!r}",
            f"choose from {', '.join(SCORES)}, or name your own as module:Name",
        )
    return find_score(metric_named(name))


def try_stored(records: Iterable[Record], asked: Iterable[str]) -> None:
    """Refuse own metrics that fail on an answer of the first episode, or score it anew each time.

    Nothing is read where no metric is the user's own.
    """
    own = sorted(filter(is_named, asked))
    answered = (record for record in records if record["failure"] is None)
    if own and (record := next(answered, None)):
        for name, question in product(own, questions(record)[:1]):
            try_metric(name, cut(record["answers"][0]), question)


def try_metric(name: str, answer: str, question: Question) -> None:
    """Refuse a metric that fails on an answer, or does not score it as before."""
    try:
        check_repeats(score_named(name), answer, question, f"the metric {name}")
    except Exception as error:
        if isinstance(error, UserError) or not (place := place_of(error)):
            raise
        what = f"{place}: {type(error).__name__}: {error} (in the metric {name})"
        raise UserError(what, "correct that line") from error


def score_record(
    record: Record, metrics: Sequence[str], verdicts: Verdicts | None = None
) -> Iterator[Scored]:
    """Score every answer of an episode."""
    failed = record["failure"] is not None
    meta = record["meta"]
    item = str(meta.get("item", record["task_id"]))
    for i, question in enumerate(questions(record)):
        scores = (0.0,) * len(metrics)
        if not failed:
            reply = cut(record["answers"][i])
            scores = tuple(
                (verdicts or {})[record["id"], i, name]
                if name in JUDGED
                else score_named(name)(reply, question)
                for name in metrics
            )
        yield Scored(
            record["task"],
            record["agent"],
            record["seed"],
            record["index"],
            i,
            item,
            cluster_of(record),
            failed,
            scores,
            tuple(axes(question, record["chunks"]).items()),
            unanswerable(question),
            record.get("hash", ""),
        )


def cluster_of(record: Record) -> str:
    """Return the cluster of an episode's task; older episodes kept none but what its meta says."""
    meta = record["meta"]
    known = record.get("cluster", meta.get("cluster", meta.get("item", record["task_id"])))
    return str(known)


def cut(reply: str) -> str:
    """Keep the end of a reply that does not end."""
    return reply[-LONGEST:]


def axes(question: Question, chunks: int) -> dict[str, str]:
    """Place a question on each of its axes: its category, and where its evidence is."""
    found = {"category": question.category} if question.category else {}
    evidence = [i for i in question.evidence if 0 <= i < chunks]
    if not evidence or chunks < 3:
        return found
    thirds = {min(2, 3 * i // chunks) for i in evidence}
    found["position"] = ("first", "middle", "last")[thirds.pop()] if len(thirds) == 1 else "spread"
    if len(evidence) > 1:
        apart = (max(evidence) - min(evidence)) / chunks
        found["distance"] = "near" if apart < 1 / 3 else "far"
        if len(set(evidence)) > 1:
            ascending = all(a <= b for a, b in pairwise(evidence))
            found["order"] = "in order" if ascending else "out of order"
    return found

"""Stored answers to scores: all metrics side by side, a failed episode scoring 0 in each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from recollect.errors import UserError
from recollect.evaluation.records import Record, questions
from recollect.metrics import SCORES
from recollect.types import Question

JUDGE = "judge"
SIDE_BY_SIDE = (
    "exact_match",
    "boxed_exact_match",
    "token_f1",
    "locomo_f1",
    "sub_exact_match",
    "ruler_recall",
    "numeric_match",
    "rouge_l",
)
"""What is always reported, beside the metric that a family is usually measured by."""

UNJUDGED = "token_f1"
"""Stands first where a family is usually judged, but nobody judges."""

LONGEST = 4000
"""Characters of an answer that are scored, its last ones: nobody is to list every candidate."""

Verdicts = Mapping[tuple[str, int], float]
"""A judge's verdicts by episode id and number of the question."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One answer with its scores."""

    task: str
    agent: str
    seed: int
    index: int
    question: int
    task_id: str
    """Answers of one task share its luck: they are no independent draws. Where every seed asks the
    same (HotpotQA's questions, among other documents each time), it names what is asked."""
    failed: bool
    scores: tuple[float, ...]
    """In the order of the metrics asked for."""
    axes: tuple[tuple[str, str], ...]


def first_metric(family_metric: str, judged: bool) -> str:
    """Return the metric that counts first; a judge's word can only count where there is one."""
    return UNJUDGED if family_metric == JUDGE and not judged else family_metric


def check_metrics(names: Iterable[str]) -> None:
    """Refuse what is no metric."""
    for name in names:
        if name not in SCORES and name != JUDGE:
            raise UserError(f"there is no metric {name!r}", f"choose from {', '.join(SCORES)}")


def score_record(
    record: Record, metrics: Sequence[str], verdicts: Verdicts | None = None
) -> Iterator[Scored]:
    """Score every answer of an episode."""
    failed = record["failure"] is not None
    for i, question in enumerate(questions(record)):
        if failed:
            scores = (0.0,) * len(metrics)
        else:
            reply = cut(record["answers"][i])
            scores = tuple(
                verdicts[record["id"], i]
                if name == JUDGE and verdicts is not None
                else SCORES[name](reply, question)
                for name in metrics
            )
        yield Scored(
            record["task"],
            record["agent"],
            record["seed"],
            record["index"],
            i,
            str(record["meta"].get("item", record["task_id"])),
            failed,
            scores,
            tuple(axes(question, record["chunks"]).items()),
        )


def cut(reply: str) -> str:
    """Keep the end of a reply that does not end."""
    return reply[-LONGEST:]


def axes(question: Question, chunks: int) -> dict[str, str]:
    """Say where a question stands on each axis that it has: category, and where its evidence is."""
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

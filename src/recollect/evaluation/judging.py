"""A judge over stored answers, and how often that judge errs.

Verdicts are kept, so a judge that fails half-way is asked again only for the rest. One that fails
ends the judging: a missing verdict is never taken for a no.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from recollect.concurrency.many import concurrently
from recollect.errors import UserError
from recollect.evaluation.graders import Grade, Graders
from recollect.evaluation.judge_pairs import PAIRS, Pair
from recollect.evaluation.records import Record, questions
from recollect.evaluation.results import Estimate, JudgeError, JudgeKind
from recollect.evaluation.scoring import cut
from recollect.metrics import final_answer, wilson
from recollect.rewards.judge import Judge
from recollect.types import Question

T = TypeVar("T")
Item = tuple[T, Grade, Question, Mapping[str, Any], str]
"""Something to file the verdict under, how to grade, the question, more about it, the answer."""


async def judge_episodes(
    graders: Graders, records: Iterable[Record], names: Mapping[str, Sequence[str]]
) -> dict[tuple[str, int, str], float]:
    """Have the answers of all episodes that did not fail judged, by every judged score of a set."""
    asked = (
        ((record["id"], i, name), graders.names[name], question, about, answer)
        for record in records
        for i, question, about, answer in _items(record)
        for name in names[record["task"]]
        if name in graders.names
    )
    return await _verdicts(graders.judge, asked)


async def measure_judge(judge: Judge, pairs: Iterable[Pair] = PAIRS) -> JudgeError:
    """Measure how often a judge errs on labelled answers."""
    listed = list(pairs)
    grade = Graders(judge).strict
    asked: Iterator[Item[int]] = (
        (i, grade, pair.question, {}, pair.answer) for i, pair in enumerate(listed)
    )
    verdicts = await _verdicts(judge, asked)
    accepted: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for i, pair in enumerate(listed):
        accepted[pair.kind, pair.right].append(verdicts[i])
    wrong = [verdicts[i] for i, pair in enumerate(listed) if not pair.right]
    right = [1 - verdicts[i] for i, pair in enumerate(listed) if pair.right]
    return JudgeError(
        await judge.model.name(),
        judge.prompt_hash,
        0.0,
        _share(wrong),
        _share(right),
        [JudgeKind(k, r, int(sum(v)), len(v)) for (k, r), v in accepted.items()],
    )


def _share(values: list[float]) -> Estimate:
    low, high = wilson(sum(values), len(values))
    mean = sum(values) / len(values) if values else 0.0
    return Estimate(mean, low, high, len(values), 0, len(values), "wilson")


def _items(record: Record) -> Iterator[tuple[int, Question, Mapping[str, Any], str]]:
    if record["failure"] is not None:
        return
    for i, question in enumerate(questions(record)):
        about = record["questions"][i].get("about") or {}
        yield i, question, about, final_answer(cut(record["answers"][i]))


async def _verdicts(judge: Judge, items: Iterator[Item[T]]) -> dict[T, float]:
    """Have answers judged, many at once."""
    verdicts: dict[T, float] = {}

    async def work() -> None:
        for key, grade, question, about, answer in items:
            # An empty answer would be refused by any judge, and some servers refuse to read it.
            verdicts[key] = await grade(question, about, answer) if answer.strip() else 0.0

    try:
        await concurrently(work() for _ in range(judge.model.concurrency))
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the judge at {judge.model.url} failed: {type(error).__name__}: {error}",
            "repair that, then judge again (what an evaluation stored: `recollect replay FOLDER"
            " --judge URL`); verdicts are kept",
        ) from error
    return verdicts

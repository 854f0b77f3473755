"""A judge over stored answers, and how often that judge errs.

Verdicts are kept, so a judge that fails half-way is asked again only for the rest. One that fails
ends the judging: a missing verdict is never taken for a no.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from recollect.concurrency import concurrently
from recollect.errors import UserError
from recollect.evaluation.judge_pairs import PAIRS, Pair
from recollect.evaluation.records import Record, questions
from recollect.evaluation.results import Estimate, JudgeError, JudgeKind
from recollect.evaluation.scoring import cut
from recollect.metrics import final_answer, wilson
from recollect.rewards.judge import Judge
from recollect.types import Question

T = TypeVar("T")
Item = tuple[T, Question, str]
"""Something to file the verdict under, the question, the answer."""


async def judge_episodes(judge: Judge, records: Iterable[Record]) -> dict[tuple[str, int], float]:
    """Have the answers of all episodes that did not fail judged."""
    return await _verdicts(judge, (item for record in records for item in _items(record)))


async def measure_judge(judge: Judge, pairs: Iterable[Pair] = PAIRS) -> JudgeError:
    """Measure how often a judge errs on labelled answers."""
    listed = list(pairs)
    verdicts = await _verdicts(judge, ((i, p.question, p.answer) for i, p in enumerate(listed)))
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


def _items(record: Record) -> Iterator[Item[tuple[str, int]]]:
    if record["failure"] is not None:
        return
    for i, question in enumerate(questions(record)):
        answer = final_answer(cut(record["answers"][i]))
        about = record["questions"][i].get("about") or {}
        # Where there is a rubric (BEAM), the score is the share of its points that are met.
        for point in about.get("rubric") or [None]:
            asked = question if point is None else replace(question, answers=(str(point),))
            yield (record["id"], i), asked, answer


async def _verdicts(judge: Judge, items: Iterator[Item[T]]) -> dict[T, float]:
    """Have answers judged, many at once; several verdicts under one name are averaged."""
    verdicts: dict[T, list[float]] = defaultdict(list)

    async def work() -> None:
        for key, question, answer in items:
            # An empty answer would be refused by any judge, and some servers refuse to read it.
            verdict = await judge(question, answer) if answer.strip() else 0.0
            verdicts[key].append(verdict)

    try:
        await concurrently(work() for _ in range(judge.model.concurrency))
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the judge at {judge.model.url} failed: {type(error).__name__}: {error}",
            "mend that, then judge again (what an evaluation stored: `recollect replay FOLDER"
            " --judge URL`); verdicts are kept",
        ) from error
    return {key: sum(own) / len(own) for key, own in verdicts.items()}

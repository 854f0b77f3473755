"""What a judge's verdicts come to: our own score, and those of LongMemEval and BEAM.

The rules of the published ones are theirs, the wording is ours; LongMemEval's own can be given as a
file. A verdict that cannot be read raises: it is never taken for a no.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from recollect.errors import UserError
from recollect.files import loads, read_file
from recollect.metrics.ordering import Ordering, order_events
from recollect.metrics.overlap import ABSTENTION
from recollect.rewards.judge import Judge, NoVerdict, read_verdict
from recollect.types import Question

EVENT_ORDERING = "event_ordering"

_RIGHT = (
    "Below are a question, its correct answer and the response of a model. Say yes if the response"
    " contains the correct answer, means the same, or holds every step that leads to it. Say no if"
    " it has only a part of what the answer needs, or anything else."
)
_ASKED = "\n\nQuestion: {question}\n\nCorrect answer: {answer}\n\nResponse: {response}\n\n"
_SAY = "Is the response correct? Say only yes or no."
LONGMEMEVAL: Mapping[str, str] = MappingProxyType(
    {
        "default": _RIGHT + _ASKED + _SAY,
        "temporal-reasoning": _RIGHT
        + " A number of days, weeks or months that is off by one is still correct."
        + _ASKED
        + _SAY,
        "knowledge-update": "Below are a question, its correct answer and the response of a model."
        " Say yes if the response contains the correct answer, even if it also tells what was true"
        " before, as long as its answer is the latest one. Otherwise say no." + _ASKED + _SAY,
        "single-session-preference": "Below are a question, a rubric of what a response that suits"
        " this user would be like, and the response of a model. Say yes if the response makes right"
        " use of what is known about the user; it need not meet every point of the rubric."
        " Otherwise say no." + _ASKED.replace("Correct answer", "Rubric") + _SAY,
        ABSTENTION: "Below are a question that cannot be answered, an explanation why, and the"
        " response of a model. Say yes if the response recognises that it cannot be answered: that"
        " information is missing, or that only something else is known."
        + _ASKED.replace("Correct answer", "Explanation")
        + "Does it recognise that? Say only yes or no.",
    }
)
"""LongMemEval's rules by type of question; all others are judged by the default."""

BEAM_POINT = (
    "You check one criterion on a response to a question. It asks for something to be there, or not"
    " to be there. A response that does not address the question gets 0. Judge what is meant, not"
    " how it is worded, and take equal numbers and dates in any format. Ignore style and length"
    " unless the criterion is about them.\n"
    'Reply with one JSON object: {"score": 1.0} if it is fully met, {"score": 0.5} if in part,'
    ' {"score": 0.0} if not.'
)
SAME_EVENT = (
    "Do these two notes describe the same event or fact? Reply with one JSON object:"
    ' {"label": "CORRECT"} if they do, {"label": "WRONG"} if not.'
)
_SCORE = re.compile(r'"score"\s*:\s*"?\s*(1(?:\.0+)?|0?\.50*|0(?:\.0+)?)\s*"?\s*[,}\n]')


@dataclass(frozen=True)
class Graders:
    """A judge, and what its verdicts are asked for."""

    judge: Judge
    longmemeval: Mapping[str, str] = field(default_factory=lambda: LONGMEMEVAL)

    @property
    def names(self) -> dict[str, Grade]:
        """The scores that need a judge, by name."""
        return {
            "judge": self.strict,
            "longmemeval_judge": self.like_longmemeval,
            "beam_judge": self.like_beam,
        }

    @property
    def prompt_hash(self) -> str:
        """Name all prompts of the published scores."""
        told = json.dumps([sorted(self.longmemeval.items()), BEAM_POINT, SAME_EVENT])
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    async def strict(self, question: Question, about: Mapping[str, Any], answer: str) -> float:
        """Our own: strictly right, or the share of a rubric's points that are met.

        Events in order count by tau times F1: who names none of them has ordered nothing.
        """
        rubric = [str(point) for point in about.get("rubric") or ()]
        if rubric and question.category == EVENT_ORDERING:
            order = await self._order(rubric, answer)
            return order.tau * order.found
        asked = [replace(question, answers=(point,)) for point in rubric] or [question]
        return sum([await self.judge(one, answer) for one in asked]) / len(asked)

    async def like_longmemeval(
        self, question: Question, about: Mapping[str, Any], answer: str
    ) -> float:
        """LongMemEval's accuracy: a prompt for every type of question, answered by yes or no."""
        kind = question.category
        template = self.longmemeval.get(kind, self.longmemeval["default"])
        filled = template.replace("{question}", question.text)
        filled = filled.replace("{answer}", question.answers[0]).replace("{response}", answer)
        return _yes(await self.judge.model(filled, "", _yes))

    async def like_beam(self, question: Question, about: Mapping[str, Any], answer: str) -> float:
        """BEAM's: points that are fully met, or Kendall's tau for events in order."""
        rubric = [str(point) for point in about.get("rubric") or question.answers]
        if question.category == EVENT_ORDERING:
            return (await self._order(rubric, answer)).tau
        met = 0
        for point in rubric:
            text = f"Question: {question.text}\nCriterion: {point}\nResponse: {answer}"
            # The published code cuts half a point off.
            met += int(_points(await self.judge.model(BEAM_POINT, text, _points)))
        return met / len(rubric)

    async def _order(self, rubric: list[str], answer: str) -> Ordering:
        """Find the event of every line, each event at most once, as the published code does."""
        said: list[int | str] = []
        for line in filter(str.strip, answer.splitlines()):
            for i, event in enumerate(rubric):
                if i not in said and await self._same(event, line):
                    said.append(i)
                    break
            else:
                said.append(line)
        return order_events(len(rubric), said)

    async def _same(self, event: str, line: str) -> bool:
        text = f"First: {event}\nSecond: {line}"
        return read_verdict(await self.judge.model(SAME_EVENT, text, read_verdict)) == 1.0


Grade = Callable[[Question, Mapping[str, Any], str], Awaitable[float]]
"""Score an answer to a question, of which the data say more."""


def read_prompts(path: Path | None) -> Mapping[str, str]:
    """Read the wording of LongMemEval's judge: a JSON object of templates by type of question."""
    if path is None:
        return LONGMEMEVAL
    fix = (
        'write {"default": "... {question} ... {answer} ... {response} ..."}, with more templates'
        f" for {', '.join(name for name in LONGMEMEVAL if name != 'default')}"
    )
    try:
        found = loads(read_file(path))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}", fix) from None
    texts = found.values() if isinstance(found, dict) else []
    fields = ("{question}", "{answer}", "{response}")
    if "default" not in found or not all(
        isinstance(text, str) and all(name in text for name in fields) for text in texts
    ):
        raise UserError(f"{path} holds no prompts of a judge", fix)
    return {str(name): text for name, text in found.items()}


def _yes(text: str) -> float:
    """Read a verdict as the published code does, where yes anywhere is a yes."""
    said = text.lower()
    if "yes" not in said and not re.search(r"\bno\b", said):
        raise NoVerdict(f"the judge said neither yes nor no: {text[:200]!r}")
    return float("yes" in said)


def _points(text: str) -> float:
    found = _SCORE.findall(text + "\n")
    if not found:
        raise NoVerdict(f"the judge gave no score of 0, 0.5 or 1: {text[:200]!r}")
    return float(found[-1])

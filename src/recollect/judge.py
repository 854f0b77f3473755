"""An LLM as judge of answers. A verdict that cannot be read raises: it is never taken for a no."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recollect.remote import RemoteModel
from recollect.types import Question

JUDGE_PROMPT = (
    "You grade an answer to a question about people's lives. You are given the question, the right"
    " answer and the answer to grade. Be generous: it is CORRECT if it says the same thing, however"
    " it is worded and however long it is, and a date or a time is CORRECT in any format. It is"
    " WRONG if it misses the point, contradicts the right answer, or does not answer.\n"
    'Reply with one JSON object: {"label": "CORRECT"} or {"label": "WRONG"}.'
)

_LABEL = re.compile(r'"label"\s*:\s*"\s*(correct|wrong)\s*"', re.IGNORECASE)
_BARE = re.compile(r"\W*(correct|wrong)\W*", re.IGNORECASE)


class NoVerdict(Exception):
    """What a judge said is no verdict."""


@dataclass(frozen=True)
class Judge:
    """Ask a model whether an answer is right: 1 or 0."""

    model: RemoteModel
    prompt: str = JUDGE_PROMPT

    async def __call__(self, question: Question, answer: str) -> float:
        """Grade an answer."""
        accepted = " or ".join(question.answers)
        text = f"Question: {question.text}\nRight answer: {accepted}\nAnswer to grade: {answer}"
        return read_verdict(await self.model(self.prompt, text, read_verdict))


def read_verdict(text: str) -> float:
    """Return 1 for CORRECT and 0 for WRONG: the last label, or the only word."""
    labels = _LABEL.findall(text)
    bare = _BARE.fullmatch(text)
    if not labels and not bare:
        raise NoVerdict(f"the judge said neither CORRECT nor WRONG: {text[:200]!r}")
    label = labels[-1] if labels else bare[1] if bare else ""
    return float(label.lower() == "correct")

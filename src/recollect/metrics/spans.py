"""Which part of a reply is its answer, and which answers are right only as the whole of it."""

from __future__ import annotations

import re

from recollect.metrics.answers import boxed, normalise, unstyled

YES_NO = frozenset({"yes", "no", "noanswer"})
"""HotpotQA's rule: these are right as the whole answer and nowhere else."""

_MARK = re.compile(r"\banswer(?:\s+(?:is|was))?\s*[*_]*\s*[:=]|\banswer\s+(?:is|was)\b", re.I)
_HEADING = re.compile(r"^\W*(?:final\s+)?answer\s*[*_]*\s*:[*_]*", re.I | re.M)


def final_answer(reply: str) -> str:
    r"""Return the answer that a reply settles on: its last box, or all of it but the thinking.

    Models like to write \boxed{\text{Paris}}: such commands are no part of the answer.
    """
    said = _after_thinking(reply)
    box = boxed(said)
    return said.strip() if box is None else unstyled(box).strip(" $")


def _after_thinking(reply: str) -> str:
    """Leave out thinking, also what was cut off before it ended: it is no answer yet."""
    return reply.rpartition("</think>")[2].partition("<think>")[0]


def answer_text(reply: str) -> str:
    """Return an answer of any length: the last box, all after a line's "Answer:", or the reply."""
    said = final_answer(reply)
    marks = list(_HEADING.finditer(said))
    return said[marks[-1].end() :].strip() if marks else said


def answer_span(reply: str) -> str:
    """Return the few words that answer: the last box, what follows "answer:", or the last line."""
    said = _after_thinking(reply)
    if boxed(said) is not None:
        return final_answer(reply)
    marks = list(_MARK.finditer(said))
    lines = [line.strip() for line in said[marks[-1].end() if marks else 0 :].splitlines()]
    return next((line for line in (lines if marks else reversed(lines)) if normalise(line)), "")


def differ_by_yes_or_no(prediction: str, answer: str) -> bool:
    """Tell whether one of two texts is yes or no as a whole, and the other is not the same."""
    found, gold = normalise(prediction), normalise(answer)
    return found != gold and (found in YES_NO or gold in YES_NO)

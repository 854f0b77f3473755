"""Why an answer is wrong, without a judge: what became of it between the text and the reply.

| cause | meaning |
|---|---|
| failed | the episode ended in an error |
| malformed | a reply could not be used: no answer, none that ended, or a memory nobody could read |
| never written | no memory ever held the answer |
| overwritten | a memory held it, and the one that was answered from did not |
| kept but misread | the memory that was answered from held it |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recollect.metrics.answers import boxed
from recollect.view.stored import Part, Stored

CAUSES = ("never written", "overwritten", "kept but misread", "malformed", "failed")
_SETTLED = re.compile(r"\banswer(?:\s+(?:is|was))?\s*[:=]|\banswer\s+(?:is|was)\b", re.IGNORECASE)
RIGHT = 0.5
"""The score from which an answer counts as right; most are 0 or 1."""


@dataclass(frozen=True)
class Life:
    """What became of one answer."""

    cause: str
    """One of `CAUSES`; empty for a right answer, and for one that nothing has scored."""
    note: str
    """What a person should know beside it."""
    reads: tuple[bool, ...]
    """At every turn, whether it read the answer ..."""
    holds: tuple[bool, ...]
    """... and whether the memory after it held it."""
    seen: int | None
    """The turn that first read it."""
    entered: int | None
    """The turn that first wrote it."""
    died: int | None
    """The turn whose memory lost it for good."""
    asked: int
    """The turn that answers, or the number of turns where no turn does."""

    def plain(self) -> dict[str, Any]:
        """Return what a page needs."""
        names = ("cause", "note", "seen", "entered", "died", "asked")
        return {name: getattr(self, name) for name in names}


def life(
    stored: Stored,
    number: int,
    parts: Sequence[Part],
    reads: Sequence[bool],
    holds: Sequence[bool],
    said: Sequence[bool],
) -> Life:
    """Follow one answer; `parts`, `reads`, `holds` and `said` have one item for every turn."""
    asked = _asked(stored, number, parts)
    until = range(min(asked, len(parts)))
    seen = next((i for i in range(len(parts)) if reads[i]), None)
    entered = next((i for i in until if holds[i]), None)
    held = bool(until) and holds[until[-1]]
    died = None
    if entered is not None and not held:
        died = 1 + max(i for i in until if holds[i])
    cause, note = "", ""
    score = stored.scores[number]
    if stored.failure or (score is not None and score < RIGHT):
        cause, note = _cause(stored, number, parts, asked, seen, entered, held, reads, said)
    return Life(cause, note, tuple(reads), tuple(holds), seen, entered, died, asked)


def _asked(stored: Stored, number: int, parts: Sequence[Part]) -> int:
    """Return the turn that answers a question: the first of the context that names it."""
    named = [i for i, part in enumerate(parts) if part.question == number]
    if named:
        return named[0]
    answering = [i for i, part in enumerate(parts) if part.role == "answer"]
    return answering[0] if answering else len(parts)


def _cause(
    stored: Stored,
    number: int,
    parts: Sequence[Part],
    asked: int,
    seen: int | None,
    entered: int | None,
    held: bool,
    reads: Sequence[bool],
    said: Sequence[bool],
) -> tuple[str, str]:
    if stored.failure:
        whose = stored.failure.get("fault", "")
        return "failed", f"at {stored.failure.get('boundary', '')}" + (
            f", {whose}" if whose else ""
        )
    if wrong := _malformed_answer(stored, number):
        return "malformed", wrong
    if held:
        return "kept but misread", ""
    if entered is not None:
        return "overwritten", ""
    if asked < len(parts) and reads[asked]:
        return "kept but misread", "the answering turn read it"
    lost = [i for i, one in enumerate(said[:asked]) if one]
    if lost and _unused(parts[lost[0]]):
        return "malformed", "a reply said it, but could not be read into the memory"
    if seen is None:
        return "never written", "no turn read it"
    return "never written", ""


def _unused(part: Part) -> bool:
    return bool(part.counts.get("malformed")) or part.turns[-1].stop == "length"


def _malformed_answer(stored: Stored, number: int) -> str:
    """Say what is wrong with the form of an answer; nothing if it can be read."""
    if not stored.speaks:
        return ""
    answer = stored.answers[number] if number < len(stored.answers) else ""
    reply = answer.rpartition("</think>")[2].strip()
    if not reply:
        return "the answer is empty"
    if stored.boxed and not (boxed(reply) or "").strip():
        return "the answer has no box, or nothing in it"
    own = [p for p in stored.parts if p.question == number and p.turns]
    settled = boxed(reply) is not None or _SETTLED.search(reply)
    if own and own[-1].turns[-1].stop == "length" and not settled:
        return "the reply was cut by its limit"
    if "<think>" in answer and "</think>" not in answer:
        return "the reply never stopped thinking"
    return ""

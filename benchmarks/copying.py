"""A scripted model that copies sentences; docs/results/compaction.md has its rules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt

from recollect.agents.reading import UNKNOWN_PROBLEM

WORD = re.compile(r"[^\W_]+")
COMMON = frozenset(
    WORD.findall(
        "a an and are as at be been but by can could did do does for from had has have he her hers"
        " him his how i if in into is it its just me my no not of on or our she so than that the"
        " their them then there they this to too up us was we were what when where which who whose"
        " why will with would you your yes about after before during all any more most some such"
        " s t d ll m re ve answer conversation dates many much use name"
    )
)


@dataclass(frozen=True)
class Extract:
    """A model that copies: the rules are written in docs/results/compaction.md."""

    memory: int
    """Bytes that it writes into a memory at most."""
    answer: int

    def __call__(self, prompt: str) -> str:
        problem = within(prompt, "problem")
        if "<section>" not in prompt:
            shown = within(prompt, "memory") or within(prompt, "text")
            return self.reply(problem, shown)
        known = "" if UNKNOWN_PROBLEM in problem else problem
        return self.keep(
            known, [*units(within(prompt, "memory")), *units(within(prompt, "section"))]
        )

    def keep(self, problem: str, found: Sequence[str]) -> str:
        """Choose what is kept: what the problem asks about, else what is most specific."""
        asked = stems(problem)

        def worth(i: int) -> tuple[float, float]:
            shared = len(asked & stems(found[i])) if asked else 0
            return -shared, -specific(found[i]) / sqrt(len(found[i]))

        kept: dict[str, int] = {}
        room = self.memory
        for i in sorted(range(len(found)), key=worth):
            size = len(found[i].encode()) + 1
            if size <= room and found[i] not in kept:
                kept[found[i]] = i
                room -= size
        return "\n".join(sorted(kept, key=kept.__getitem__)) or "nothing"

    def reply(self, problem: str, text: str) -> str:
        """Answer with the piece of text that shares the rarest words with the question."""
        found = units(text)
        held = [stems(unit) for unit in found]
        counts = Counter(stem for one in held for stem in one)
        asked = stems(problem)

        def worth(i: int) -> float:
            return sum(log(1 + len(found) / counts[stem]) for stem in asked & held[i])

        best = max(range(len(found)), key=worth, default=None)
        return found[best][: self.answer] if best is not None else "unknown"


def within(prompt: str, tag: str) -> str:
    """Return what a prompt shows between two tags."""
    return prompt.partition(f"<{tag}>\n")[2].rpartition(f"\n</{tag}>")[0]


def units(text: str) -> list[str]:
    """Cut a text into turns, and long turns into sentences that keep their speaker and date."""
    found: list[str] = []
    date = ""
    for line in filter(None, map(str.strip, text.split("\n"))):
        if line.startswith("[") and line.endswith("]"):
            date = f"{line} "
            continue
        dated = "" if line.startswith("[") else date
        speaker = re.match(r"[^:.!?]{1,30}: ", line)
        lead = speaker[0] if speaker else ""
        parts = [line] if len(line) < 200 else re.split(r"(?<=[.!?]) +", line[len(lead) :])
        prefix = "" if len(line) < 200 else lead
        found += [f"{dated}{prefix}{part}"[:300] for part in parts]
    return [unit for unit in found if unit not in ("No previous memory", "nothing")]


def stems(text: str) -> frozenset[str]:
    """Return the first five letters of the words that say something."""
    return frozenset(w[:5] for w in WORD.findall(text.lower()) if w not in COMMON and len(w) > 1)


def specific(unit: str) -> float:
    """Count names, numbers and words about the speaker, after the speaker's own name."""
    said = unit.partition("] ")[2] or unit
    said = said.partition(": ")[2] or said
    found = set(WORD.findall(said)[1:])
    named = sum((w[0].isupper() and w not in ("I",)) or any(c.isdigit() for c in w) for w in found)
    return named + len(found & {"my", "My", "me", "our", "we"}) * 0.5 + ("I" in found) * 0.5

"""A scripted model for every agent: it copies pieces of text, searches, and writes taught programs.

For `python -m benchmarks.recursive harness`. docs/results/recursive.md has its rules.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt

from benchmarks.copying import COMMON, WORD, within
from recollect.agents.reading import UNKNOWN_PROBLEM
from recollect.agents.recursive_teacher import fenced, program_for

SEARCH = """\
found = search(question, 8)
found = [p for at, p in sorted([(text.find(p), p) for p in found])]
answer(ask("\\n\\n".join(found), question))"""
"""What is written for a question that the teacher does not know."""
NEAR = 0.9
"""Pieces whose worth is at least this share of the best one's fit as well."""
_HIT = re.compile(r'(?:\{"results": \[|"\}, )\{"rank": \d+, "score": [\d.]+, "text": "')


@dataclass(frozen=True)
class Reader:
    """Reads what a prompt of any agent shows; knows no answer, and no task's wording in a text."""

    memory: int
    """Bytes that it writes into a memory at most."""
    answer: int

    def __call__(self, prompt: str) -> str:
        if "in the variable text" in prompt and "<text>" not in prompt:
            return fenced(program_for(within(prompt, "problem")) or SEARCH)
        if "<core_memory>" not in prompt:
            return self._without_tools(prompt)
        core = within(prompt, "core_memory")
        if "<question>" not in prompt:
            return self.keep("", [*units(core), *units(within(prompt, "section"))])
        question = within(prompt, "question")
        if "memory_bm25_retrieve" in prompt.rpartition("</question>")[2]:
            return self.reply(question, _passages(prompt) or core)
        call = {"name": "memory_bm25_retrieve", "arguments": {"query": question, "top_k": 8}}
        return f"<tool_call>{json.dumps(call)}</tool_call>"

    def _without_tools(self, prompt: str) -> str:
        problem, memory = within(prompt, "problem"), within(prompt, "memory")
        if "<section>" not in prompt:
            return self.reply(problem, memory or within(prompt, "text"))
        known = "" if UNKNOWN_PROBLEM in problem else problem
        return self.keep(known, [*units(memory), *units(within(prompt, "section"))])

    def keep(self, problem: str, found: Sequence[str]) -> str:
        """Choose what is kept: what the question asks about, else what is most specific."""
        asked = stems(_question(problem))

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
        """Answer with the newest piece that fits best; with all that fit, or how many, if asked."""
        found = list(dict.fromkeys(units(text)))
        held = [stems(unit) for unit in found]
        counts = Counter(stem for one in held for stem in one)
        asked = stems(_question(problem))
        worth = [sum(log(1 + len(found) / counts[s]) for s in asked & own) for own in held]
        best = max(worth, default=0.0)
        near = [unit for unit, own in zip(found, worth, strict=True) if own >= NEAR * best > 0]
        if not near:
            return "unknown"
        if "how many" in problem.lower():
            return f"\\boxed{{{len(near)}}}"
        every = "give them all" in problem
        return " ".join(near)[: self.answer] if every else near[-1][: self.answer]


def _question(problem: str) -> str:
    """Return a problem up to its last question mark, without the date that it may begin with."""
    asked, mark, _ = re.sub(r"^It is [\d/]+[^.]* now\. ", "", problem).rpartition("?")
    return asked + mark or problem


def _passages(prompt: str) -> str:
    """Return what a search has found, best first; the agent cuts long responses."""
    found = _HIT.split(prompt.rpartition("memory_bm25_retrieve")[2])[1:]
    return "\n\n".join(found).replace("\\n", "\n").replace('\\"', '"')


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

"""A scripted model for every agent: it copies pieces of text, searches, and writes taught programs.

For `python -m benchmarks.recursive harness`. docs/results/recursive.md has its rules.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from benchmarks.copying import Extract, stems, units, within
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
class Reader(Extract):
    """Reads what a prompt of any agent shows; knows no answer, and no task's wording in a text."""

    def __call__(self, prompt: str) -> str:
        if "in the variable text" in prompt and "<text>" not in prompt:
            return fenced(program_for(within(prompt, "problem")) or SEARCH)
        if "<core_memory>" not in prompt:
            return super().__call__(prompt)
        core = within(prompt, "core_memory")
        if "<question>" not in prompt:
            return self.keep("", [*units(core), *units(within(prompt, "section"))])
        question = within(prompt, "question")
        if "memory_bm25_retrieve" in prompt.rpartition("</question>")[2]:
            return self.reply(question, _passages(prompt) or core)
        call = {"name": "memory_bm25_retrieve", "arguments": {"query": question, "top_k": 8}}
        return f"<tool_call>{json.dumps(call)}</tool_call>"

    def keep(self, problem: str, found: Sequence[str]) -> str:
        """Choose what is kept by the question alone, without what else a problem says."""
        return super().keep(_question(problem), found)

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

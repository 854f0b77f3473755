"""A teacher that reads BABILong by rules: qa1 to qa3, the facts of bAbI hidden in books.

A memory holds where somebody is (qa1), where everybody and one thing are (qa2), and all places that
the thing has been to (qa3). What a page says is quoted before it is decided on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.chronicle_teacher import NOTHING, gates, shown

_FACT = re.compile(
    r"(?P<who>Mary|John|Daniel|Sandra) (?:"
    r"(?:moved|went|went back|journeyed|travelled) to the (?P<place>\w+)"
    r"|(?:got|took|grabbed|picked up) the (?P<taken>\w+)(?: there)?"
    r"|(?:dropped|put down|left|discarded) the (?P<left>\w+)(?: there)?)\."
)
_ASKED = re.compile(r"Where (?:is|was) (?:the )?(\w+)(?: before the (\w+))?\?")


@dataclass
class Known:
    """Where people and one thing are."""

    places: dict[str, str] = field(default_factory=dict)
    trail: list[str] = field(default_factory=list)
    """Places of the thing that was asked about, the last one last."""
    holder: str = ""
    """Who has it."""

    def take(self, fact: re.Match[str], thing: str) -> None:
        """Take in a fact."""
        who = fact["who"]
        if fact["place"]:
            self.places[who] = fact["place"]
        elif fact["taken"] == thing:
            self.holder = who
        elif fact["left"] == thing and self.holder == who:
            self.holder = ""
        here = self.places.get(who)
        touched = who == self.holder or thing in (fact["taken"], fact["left"])
        if touched and here and self.trail[-1:] != [here]:
            self.trail.append(here)


def subject(question: str) -> tuple[str, bool]:
    """Return who or what is asked about, and whether its past is."""
    found = _ASKED.match(question)
    if not found:
        raise ValueError(f"BABILong's first three tasks do not ask {question!r}")
    return found[1], found[2] is not None


def recall(memory: str, question: str) -> Known:
    """Take a memory back."""
    name, _ = subject(question)
    known = Known()
    for line in memory.splitlines():
        who, colon, said = line.partition(": ")
        if colon and who == name and not name[0].isupper():
            *known.trail, last = said.split(", ")
            if last.startswith("with "):
                known.holder = last[5:]
            else:
                known.trail.append(last)
        elif colon:
            known.places[who] = said
    return known


def noted(known: Known, question: str) -> str:
    """Write what should be kept for a question."""
    name, past = subject(question)
    if name[0].isupper():
        return f"{name}: {known.places[name]}" if name in known.places else NOTHING
    lines = [f"{who}: {place}" for who, place in sorted(known.places.items())]
    trail = known.trail if past or known.holder == "" else []
    said = [*(trail if past else trail[-1:]), *([f"with {known.holder}"] if known.holder else [])]
    return "\n".join([*lines, *([f"{name}: {', '.join(said)}"] if said else [])]) or NOTHING


def facts(page: str, question: str) -> Iterator[re.Match[str]]:
    """Find what a page says that matters: about a person, or about everybody and a thing."""
    name, _ = subject(question)
    for fact in _FACT.finditer(page):
        if fact["place"]:
            if fact["who"] == name or not name[0].isupper():
                yield fact
        elif name in (fact["taken"], fact["left"]):
            yield fact


class BabiTeacher:
    """Reply as one who reads by rules, and knows nothing but what a prompt shows."""

    def reply(self, prompt: str) -> str:
        """Write the next memory, or the answer."""
        question = shown(prompt, "problem")
        memory = shown(prompt, "memory")
        if "<section>" not in prompt:
            return f"\\boxed{{{looked_up(recall(memory, question), question)}}}"
        now = recall(memory, question)
        quotes = []
        for fact in facts(shown(prompt, "section"), question):
            now.take(fact, subject(question)[0])
            quotes.append(fact[0])
        return " ".join([*quotes, gates(memory, noted(now, question))])


def looked_up(known: Known, question: str) -> str:
    """Answer from what is known; an empty text where that does not tell."""
    name, past = subject(question)
    if name[0].isupper():
        return known.places.get(name, "")
    if not past:
        return known.places.get(known.holder, "") if known.holder else "".join(known.trail[-1:])
    found = _ASKED.match(question)
    place = found[2] if found else ""
    at = len(known.trail) - 1 - known.trail[::-1].index(place) if place in known.trail else 0
    return known.trail[at - 1] if at else ""

"""A scripted model that copies sentences; docs/results/compaction.md has its rules.

It knows no answers: it sees a prompt, as every model does, and nothing else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log

from recollect.agents.reading import UNKNOWN_PROBLEM

WORD = re.compile(r"[^\W_]+")
COMMON = frozenset(
    WORD.findall(
        "a an and are as at be been but by can could did do does for from had has have he her hers"
        " him his how i if in into is it its just me my no not of on or our she so than that the"
        " their them then there they this to too up us was we were what when where which who whose"
        " why will with would you your yes about after before during all any more most some such"
        " s t d ll m re ve answer conversation dates many much use name few words"
    )
)
OWN = frozenset(("I", "my", "My", "me", "our", "Our", "we", "We"))
LONG = 200
"""Characters from which on a turn is cut into sentences."""
NOW = re.compile(r"^\s*It is [^.]* now\. ")
"""How LongMemEval's questions say when they are asked."""
TAGS = re.compile(r"</?(?:memory|text|section|problem)>|role: \w+|\u2404")


@dataclass(frozen=True)
class Extract:
    """A model that copies: it keeps pieces of text, and answers with pieces."""

    memory: int
    """Bytes that it writes into a memory at most."""
    answer: int

    def __call__(self, prompt: str) -> str:
        if "<section>" in prompt:
            problem = within(prompt, "problem")
            known = "" if UNKNOWN_PROBLEM in problem else problem
            return self.keep(known, within(prompt, "memory"), within(prompt, "section"))
        text, _, asked = prompt.rpartition("role: user\n")
        return self.reply(asked.partition("role: assistant")[0], text)

    def keep(self, problem: str, *texts: str) -> str:
        """Choose what is kept: what the problem asks about, then what says the most that is new."""
        found = list(dict.fromkeys(one for text in texts for one in units(text)))
        chosen: list[int] = []
        dates: set[str] = set()
        room = self.memory
        for i in self._chosen(problem, found):
            date = found[i].date
            size = len(found[i].brief.encode()) + 1
            size += len(date.encode()) + 1 if date not in dates else 0
            if size <= room:
                chosen.append(i)
                dates.add(date)
                room -= size
        return written([found[i] for i in sorted(chosen)]) or "nothing"

    def _chosen(self, problem: str, found: Sequence[Unit]) -> Iterator[int]:
        """Yield pieces, the best first: rare words count once, whichever piece has them."""
        held = [stems(f"{one.date} {one.said}") for one in found]
        worth = rarity(held)
        asked = stems(NOW.sub("", problem))
        nearest = sorted(
            (i for i in range(len(found)) if asked & held[i]),
            key=lambda i: (-sum(worth[stem] for stem in asked & held[i]), i),
        )
        yield from nearest
        left = set(range(len(found))) - set(nearest)
        new = {i: set(held[i]) for i in left}
        for i in nearest:
            for rest in new.values():
                rest -= held[i]
        value = {i: self._value(found[i], new[i], worth) for i in left}
        while left:
            best = max(left, key=lambda i: (value[i], -i))
            yield best
            left.remove(best)
            for i in left:
                if new[i] & held[best]:
                    new[i] -= held[best]
                    value[i] = self._value(found[i], new[i], worth)

    @staticmethod
    def _value(unit: Unit, new: set[str], worth: dict[str, float]) -> float:
        """Weigh what a piece says against its length; names, numbers and "I" count twice."""
        said = sum(worth[stem] * (2 if stem in unit.specific else 1) for stem in new)
        return said * (2 if unit.own else 1) / max(1, len(unit.brief))

    def reply(self, problem: str, text: str) -> str:
        """Answer with the pieces that share the rarest words with the question."""
        found = list(dict.fromkeys(units(TAGS.sub("", text))))
        held = [stems(f"{one.date} {one.said}") for one in found]
        worth = rarity(held)
        asked = stems(NOW.sub("", problem))
        scores = [sum(worth[stem] for stem in asked & own) for own in held]
        reply = ""
        for i in sorted(range(len(found)), key=lambda i: (-scores[i], i)):
            piece = f"{found[i].date} {found[i].said}".strip()
            if reply and len(reply) + len(piece) >= self.answer:
                break
            reply = f"{reply} {piece}".strip()
        return reply[: self.answer] or "unknown"


@dataclass(frozen=True)
class Unit:
    """A turn, or a sentence of a long one."""

    date: str
    """What the text says in brackets before it, brackets included."""
    said: str

    @cached_property
    def brief(self) -> str:
        """The piece without common words, as it is kept."""
        who, mark, rest = self.said.partition(": ")
        if not mark or len(who) > 30:
            who, mark, rest = "", "", self.said
        kept = [word for word in rest.split() if word.lower().strip(".,!?;:'\"") not in COMMON]
        return f"{who}{mark}{' '.join(kept)}"

    @cached_property
    def own(self) -> bool:
        """Whether the speaker says something of themselves."""
        return not OWN.isdisjoint(WORD.findall(self.said))

    @cached_property
    def specific(self) -> frozenset[str]:
        """The stems of names and numbers, after the speaker and the first word."""
        said = WORD.findall(self.said.partition(": ")[2] or self.said)[1:]
        return stems(" ".join(w for w in said if w[0].isupper() or any(map(str.isdigit, w))))


def within(prompt: str, tag: str) -> str:
    """Return what a prompt shows between two tags."""
    return prompt.partition(f"<{tag}>\n")[2].rpartition(f"\n</{tag}>")[0]


def units(text: str) -> list[Unit]:
    """Cut a text into turns, and long turns into sentences that keep their speaker and date."""
    found: list[Unit] = []
    date = ""
    for line in filter(None, map(str.strip, text.split("\n"))):
        line = re.sub(r"^user: (?=\[)", "", line)
        if line.startswith("[") and line.endswith("]"):
            date = line
            continue
        speaker = re.match(r"[^:.!?]{1,30}: ", line)
        lead = speaker[0] if speaker else ""
        parts = [line]
        if len(line) >= LONG:
            parts = [lead + part for part in re.split(r"(?<=[.!?]) +", line[len(lead) :])]
        found += [Unit(date, part[:300]) for part in parts]
    return [one for one in found if one.said not in ("No previous memory", "nothing")]


def written(found: Sequence[Unit]) -> str:
    """Write pieces down under their dates, without common words."""
    lines: list[str] = []
    date = ""
    for one in found:
        if one.date != date:
            lines.append(one.date)
            date = one.date
        lines.append(one.brief)
    return "\n".join(lines)


def rarity(held: Sequence[frozenset[str]]) -> dict[str, float]:
    """Weigh words: the fewer pieces have one, the more it says."""
    counts = Counter(stem for one in held for stem in one)
    return {stem: log(1 + len(held) / times) for stem, times in counts.items()}


def stems(text: str) -> frozenset[str]:
    """Return the first five letters of the words that say something."""
    found = WORD.findall(text.lower())
    return frozenset(w[:5] for w in found if w not in COMMON and (len(w) > 1 or w.isdigit()))

"""The plan of a chronicle: how much of what a text of a length has. Pure figures.

All people follow one law, and who is asked about is drawn after the text is written. The final
towns of all people are dealt evenly, so any rule that does not read the question is right as often
as a guess, whatever it looks at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from types import MappingProxyType

TOWNS = 8
"""Towns of a text: an answer is one of them."""
LEAST = 4096
"""Tokens of the shortest text: with fewer, a person is mentioned too rarely for the words around a
name to say nothing."""
EACH = 15.3
"""Tokens of a statement, on average, by the fixed estimate."""
SHARES: Mapping[str, float] = MappingProxyType(
    {"place": 0.4, "letter": 0.35, "thing": 0.15, "filler": 0.1}
)
"""What statements are about."""
TITLE = 0.33
"""Sentences that the title of a chunk takes the room of."""
MOST_LETTERS = 40
_DISTINCT = 0.75
"""Share of the sentences about letters that tell of one for the first time."""


@dataclass(frozen=True)
class Plan:
    """The numbers of everything in a text."""

    chunks: int
    sentences: int
    """Statements of a chunk; some are two sentences."""
    people: int
    things: int
    """As many as there are towns, or twice or four times as many: their keepers are spread evenly
    over the towns."""
    most: int
    """Days on which a person receives a letter, at most; and sends one."""

    @classmethod
    def of(cls, tokens: int, chunk_tokens: int) -> Plan:
        """Plan a text; people grow with the root of its length, up to 64."""
        chunks = max(2, round(tokens / chunk_tokens))
        sentences = max(1, round(tokens / chunks / EACH - TITLE))
        people = TOWNS * max(2, min(8, round(2 * sqrt(tokens / LEAST))))
        letters = chunks * page(sentences).count("letter")
        most = max(1, min(MOST_LETTERS, int(2 * _DISTINCT * letters / people)))
        return cls(chunks, sentences, people, TOWNS * (people // (2 * TOWNS)), most)


def page(sentences: int) -> list[str]:
    """Say what the statements of a page are about: the same for all pages, so that no page looks
    like one with evidence."""
    wanted = {about: sentences * share for about, share in SHARES.items()}
    found = [about for about, count in wanted.items() for _ in range(int(count))]
    rest = sorted(wanted, key=lambda about: int(wanted[about]) - wanted[about])
    return found + rest[: sentences - len(found)]

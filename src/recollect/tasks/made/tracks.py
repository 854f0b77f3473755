"""Tracks: what a recall story tells about whom, chunk by chunk, before any word of it is chosen.

A track is mentioned in some of the chunks. On one side of a chunk drawn among these it is about a
subject that can be asked, on the other side about one that never is. All tracks follow the same
law and a chunk tells the same number of facts whatever it holds, so nothing in the text says which
subject is asked about. Knows nothing of words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from random import Random


@dataclass(frozen=True)
class Track:
    """The chunks that mention one track, and the one among them that holds the evidence."""

    chunks: tuple[int, ...]
    evidence: int
    latest: bool
    """Whether the subject that can be asked comes before the evidence, or after it."""

    @property
    def asked(self) -> list[int]:
        """The chunks about the subject that can be asked; the evidence is one of them."""
        return [c for c in self.chunks if c == self.evidence or (c < self.evidence) == self.latest]

    @property
    def other(self) -> list[int]:
        """The chunks about the subject that is never asked."""
        return [c for c in self.chunks if c != self.evidence and (c < self.evidence) != self.latest]


def draw_presence(
    chunks: int, facts: int, updates: float, most: int, least: int, rng: Random
) -> list[list[int]]:
    """Draw which tracks each chunk tells: at most `facts` of them, each with chance `updates`.

    With `most` tracks there may be too few to fill the chunks; at least `least` are mentioned.
    """
    if updates == 0:  # every track is told once
        places = rng.sample(range(chunks * facts), min(most, chunks * facts))
        told: list[list[int]] = [[] for _ in range(chunks)]
        for track, place in enumerate(places):
            told[place // facts].append(track)
        return told
    count = max(1, min(most, _split_ratio(facts / updates, rng)))
    told = []
    for _ in range(chunks):
        share = min(facts, count * updates)
        size = facts if count < most else floor(share) + (rng.random() < share - floor(share))
        told.append(rng.sample(range(count), min(size, count)))
    _tell_at_least(told, count, min(least, count), rng)
    return told


def _split_ratio(ratio: float, rng: Random) -> int:
    """Draw one of the two numbers around a ratio so that the mean of 1 / number is 1 / ratio."""
    low = floor(ratio)
    if low < 1 or low == ratio:
        return max(1, low)
    share = (1 / ratio - 1 / (low + 1)) / (1 / low - 1 / (low + 1))
    return low if rng.random() < share else low + 1


def _tell_at_least(told: list[list[int]], count: int, least: int, rng: Random) -> None:
    """Put missing tracks in place of tracks that are mentioned more than once."""
    times = Counter(track for chunk in told for track in chunk)
    missing = [track for track in range(count) if not times[track]]
    rng.shuffle(missing)
    for track in missing[: max(0, least - len(times))]:
        spare = [
            (c, i) for c, chunk in enumerate(told) for i, t in enumerate(chunk) if times[t] > 1
        ]
        if spare:
            c, i = rng.choice(spare)
            times[told[c][i]] -= 1
            told[c][i] = track
        else:
            told[rng.randrange(len(told))].append(track)
        times[track] = 1


def spread_values(
    slots: Sequence[int], evidence: int, answer: str, values: Sequence[str], latest: bool,
    rng: Random,
) -> list[list[str]]:  # fmt: skip
    """Draw the values of a subject's mentions; `slots` counts the mentions of every chunk.

    Values are mentioned equally often, as far as possible, and the answer is any of them with
    the same chance: how often a value is mentioned does not tell which one counts. In the chunk
    of the evidence the answer is the last or the first mention.
    """
    total = sum(slots)
    told = [answer, *rng.sample([v for v in values if v != answer], min(total, len(values)) - 1)]
    left = Counter(dict.fromkeys(told, total // len(told)))
    left.update(rng.sample(told, total % len(told)))
    found: list[list[str]] = [[] for _ in slots]
    rest = [i for i in range(len(slots)) if i != evidence]
    rng.shuffle(rest)
    for i in (evidence, *rest):
        held = [answer] if i == evidence else []
        # The most frequent of what is left first: so no value remains for one chunk twice.
        order = sorted(told, key=lambda value: (-left[value], rng.random()))
        held += [value for value in order if value not in held][: slots[i] - len(held)]
        left.subtract(held)
        rng.shuffle(held)
        if i == evidence:
            held.remove(answer)
            held.insert(len(held) if latest else 0, answer)
        found[i] = held
    return found

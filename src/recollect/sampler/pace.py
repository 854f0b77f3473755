"""Whether drafts are worth their cost, from what they gave and how long it took."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

NEW = 0.3
"""Weight of the latest burst in what is expected of the next one."""
COST = 1.3
"""Time of a step with drafts, in steps without, as long as not both were measured."""
SURE = 3.0
"""Tokens of a sequence and step for which no step with drafts costs too much."""
REST = 16
"""Bursts without drafts, at most, before drafts are tried again."""
NARROW = 3
"""Tokens of a sequence and step, on average, that a narrow step has room for."""


@dataclass
class Pace:
    """Choose how the next burst works: without drafts, with few, or with many."""

    gain: float = 4.0
    """Tokens of a sequence and step that drafts are expected to give."""
    wanted: float = NARROW
    """Tokens drafted for a sequence and step."""
    totals: Counter[str] = field(default_factory=Counter)
    """Steps of the model in all bursts, tokens drafted and accepted."""
    _seconds: dict[tuple[bool, int], float] = field(default_factory=dict)
    """Seconds of a step, by whether it has drafts, and by the rounded number of sequences."""
    _warm: set[tuple[bool, int]] = field(default_factory=set)
    """Those that had a burst before: the first of its kind takes longer."""
    _rest: int = 0
    _next_rest: int = 0

    def drafts(self, rows: int) -> bool:
        """Tell whether the next burst should have drafts."""
        size = rows.bit_length()
        if (
            self.gain < SURE
            and (True, size) in self._seconds
            and (False, size) not in self._seconds
        ):
            return False  # to compare with
        self._rest = max(0, self._rest - 1)
        return not self._rest

    @property
    def narrow(self) -> bool:
        """Whether a narrow step has room for what is drafted."""
        return self.wanted < 0.8 * (NARROW - 1)

    def drafted(
        self, rows: int, steps: int, seconds: float, made: int, active: int, drafted: int
    ) -> None:
        """Remember a burst with drafts: steps in which a sequence was active, what they gave."""
        self._note(True, rows, steps, seconds)
        self.totals.update(drafted=drafted, accepted=made - active)
        if not active:
            return
        weight = 1.0 if self._next_rest else NEW  # the first one in a while counts alone
        self.gain += weight * (made / active - self.gain)
        self.wanted += weight * (drafted / active - self.wanted)
        if self.gain >= self._cost(rows):
            self._next_rest = 0
        else:
            self._next_rest = min(REST, 2 * self._next_rest or 2)
            self._rest = self._next_rest

    def plain(self, rows: int, steps: int, seconds: float) -> None:
        """Remember a burst without drafts."""
        self._note(False, rows, steps, seconds)

    def _cost(self, rows: int) -> float:
        size = rows.bit_length()
        plain, drafted = self._seconds.get((False, size)), self._seconds.get((True, size))
        return max(1.05, drafted / plain) if plain and drafted else COST

    def _note(self, drafts: bool, rows: int, steps: int, seconds: float) -> None:
        self.totals["steps"] += steps
        name, taken = (drafts, rows.bit_length()), seconds / steps
        if name not in self._warm:
            self._warm.add(name)
        elif seconds:
            known = self._seconds.get(name, taken)
            self._seconds[name] = known + NEW * (taken - known)

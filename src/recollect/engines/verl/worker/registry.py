"""The registry of trials: who has which one open, how far they grew, and how they ended.

Trials live in the workers that run their episodes; this knows their names, times and counts, and
keeps the final states of the latest. Plain data, no Ray: `broker` gives it to a cluster.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from recollect.memory.changes import Growth

LEASE = 900.0
"""Seconds after which a worker that was not heard of counts as lost. One with open trials tells of
itself every minute that they are used; the end of a run is announced, and waits for no lease."""
KEPT = 4096
"""Final states that stay to be asked for."""


@dataclass
class Open:
    """A trial that somebody works on."""

    namespace: str
    owner: str
    since: float


@dataclass(frozen=True)
class Final:
    """How a trial ended."""

    trial: str
    namespace: str
    state: dict[str, Any]
    """What differs from the base, as `Store.snapshot` tells it."""
    growth: Growth


@dataclass
class LeaseTally:
    """What one run's trials came to."""

    opened: int = 0
    closed: int = 0
    lost: int = 0
    """Those of the closed ones whose worker was not heard of any more."""
    unknown: int = 0
    """Closed without having been opened: the broker had been started again in between."""
    peak: int = 0
    growth: Growth = field(default_factory=Growth)
    """The growth of all closed trials."""


class Registry:
    """Trials of one run."""

    def __init__(
        self,
        lease: float = LEASE,
        kept: int = KEPT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lease, self.kept, self.clock = lease, kept, clock
        self.tally = LeaseTally()
        self._open: dict[str, Open] = {}
        self._heard: OrderedDict[str, float] = OrderedDict()  # owners, the longest silent first
        self._finals: OrderedDict[str, Final] = OrderedDict()
        self._lost: OrderedDict[str, None] = OrderedDict()  # whose worker may still be heard of

    def open(self, trial: str, namespace: str, owner: str) -> bool:
        """Register a trial; False if it is open already."""
        self.expire()
        self.hear(owner)
        if trial in self._open:
            return False
        self._open[trial] = Open(namespace, owner, self.clock())
        self.tally.opened += 1
        self.tally.peak = max(self.tally.peak, len(self._open))
        return True

    def hear(self, owner: str) -> None:
        """Renew the leases of a worker."""
        self._heard[owner] = self.clock()
        self._heard.move_to_end(owner)

    def close(self, trial: str, namespace: str, state: dict[str, Any], growth: Growth) -> None:
        """End a trial and keep its final state; one that is ended already is not counted again."""
        known = self._open.pop(trial, None)
        if known is not None:
            self.hear(known.owner)
            self.tally.closed += 1
        elif trial in self._lost:  # its worker was only late
            del self._lost[trial]
            self.tally.lost -= 1
        elif trial in self._finals:  # a call that was sent twice
            return
        else:
            self.tally.unknown += 1
            self.tally.closed += 1
        self.tally.growth += growth
        _keep(self._finals, trial, Final(trial, namespace, state, growth), self.kept)

    def leave(self, owner: str) -> int:
        """End the trials of a worker that is gone; return how many there were."""
        self._heard.pop(owner, None)
        lost = [trial for trial, held in self._open.items() if held.owner == owner]
        for trial in lost:
            del self._open[trial]
            _keep(self._lost, trial, None, self.kept)
        self.tally.closed += len(lost)
        self.tally.lost += len(lost)
        return len(lost)

    def end(self) -> int:
        """End the trials of all workers; return how many there were."""
        return sum(self.leave(owner) for owner in list(self._heard))

    def expire(self) -> int:
        """End the trials of workers that were silent for the length of a lease; return how many."""
        latest, lost = self.clock() - self.lease, 0
        while self._heard and next(iter(self._heard.values())) <= latest:
            lost += self.leave(next(iter(self._heard)))
        return lost

    def final(self, trial: str) -> Final | None:
        """Return how a trial ended, if that is still known."""
        return self._finals.get(trial)

    def finals(self, namespace: str) -> list[Final]:
        """Return how the latest trials of a namespace ended, the oldest first."""
        return [final for final in self._finals.values() if final.namespace == namespace]

    def live(self) -> dict[str, str]:
        """Return the open trials and who has them."""
        self.expire()
        return {trial: held.owner for trial, held in self._open.items()}

    def statistics(self) -> dict[str, float]:
        """Count, as metrics are named."""
        self.expire()
        growth = asdict(self.tally.growth)
        counts = {
            "opened": self.tally.opened,
            "closed": self.tally.closed,
            "lost": self.tally.lost,
            "unknown": self.tally.unknown,
            "live": len(self._open),
            "peak": self.tally.peak,
            "workers": len(self._heard),
            **{f"growth/{name}": growth[name] for name in ("created", "updated", "deleted")},
            "growth/tokens": growth["tokens"],
        }
        return {f"trials/{name}": float(value) for name, value in counts.items()}


def _keep(table: OrderedDict[str, Any], name: str, value: Any, most: int) -> None:
    """Put something last into a table that forgets the oldest."""
    table[name] = value
    table.move_to_end(name)
    while len(table) > most:
        table.popitem(last=False)

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

LEASE = 3600.0
"""Seconds after which a worker that was not heard of counts as lost."""
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
class Tally:
    """What one run's trials came to."""

    opened: int = 0
    closed: int = 0
    lost: int = 0
    """Those of the closed ones whose worker was not heard of any more."""
    unknown: int = 0
    """Closed without having been opened: the broker had been started again in between."""
    peak: int = 0
    growth: Growth = field(default_factory=Growth)
    """Of all closed trials together."""


class Registry:
    """Trials of one run."""

    def __init__(
        self,
        lease: float = LEASE,
        kept: int = KEPT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lease, self.kept, self.clock = lease, kept, clock
        self.tally = Tally()
        self._open: dict[str, Open] = {}
        self._heard: OrderedDict[str, float] = OrderedDict()  # owners, the longest silent first
        self._finals: OrderedDict[str, Final] = OrderedDict()

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
        """End a trial and keep its final state."""
        known = self._open.pop(trial, None)
        if known is None:
            self.tally.unknown += 1
        else:
            self.hear(known.owner)
        self.tally.closed += 1
        self.tally.growth += growth
        self._finals[trial] = Final(trial, namespace, state, growth)
        self._finals.move_to_end(trial)
        while len(self._finals) > self.kept:
            self._finals.popitem(last=False)

    def leave(self, owner: str) -> int:
        """End the trials of a worker that is gone; return how many there were."""
        self._heard.pop(owner, None)
        lost = [trial for trial, held in self._open.items() if held.owner == owner]
        for trial in lost:
            del self._open[trial]
        self.tally.closed += len(lost)
        self.tally.lost += len(lost)
        return len(lost)

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

"""Trials: leased stores over shared bases, by namespace, that leave nothing behind.

The bases are flat arrays (`Corpus.save` writes them, `Corpus.open` maps them), so the processes of
a cluster can map the same files and keep their trials to themselves; a registry that they share
needs only the names, times and counts kept here. Knows nothing of agents.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self, cast

from recollect.errors import UserError
from recollect.memory.changes import CountTokens, Growth, count_words
from recollect.memory.corpus import Corpus
from recollect.memory.store import Embed, Store

REQUEST = 8
"""A trial's namespace ends with this many characters of its request id."""


@dataclass(frozen=True)
class Statistics:
    """What a manager has seen."""

    opened: int
    closed: int
    expired: int
    """Those of the closed ones whose lease ran out."""
    live: int
    peak: int
    """Most trials alive at once."""
    growth: Growth
    """The growth of all live trials."""
    total: Growth
    """The growth of all trials; a closed one counts as it was at the end, but holds no bytes."""
    base_bytes: int
    """What the bases take, once for all trials."""


class Trial(Store):
    """A store whose lease every use renews; closing it gives the lease back."""

    def __init__(
        self, manager: MemoryStoreManager, corpus: Corpus, namespace: str, request: str
    ) -> None:
        super().__init__(corpus, manager.embed)
        self.namespace = namespace
        self.request = request
        self.last_used = manager.clock()
        self._manager = manager

    def close(self) -> None:
        """Drop the edits and give the lease back; closing again does nothing."""
        if not self._closed:
            self._manager._end(self, "it was closed")

    def _drop(self, why: str) -> None:
        self._closed = why
        super().close()

    def _use(self) -> None:
        super()._use()
        self._manager._renew(self)

    def _fresh(self) -> Self:
        lease = self._manager._lease(self.corpus, self.namespace, uuid.uuid4().hex)
        return cast(Self, lease)


class MemoryStoreManager:
    """Opens, leases, counts and closes trials. For one event loop: no call here waits."""

    def __init__(
        self,
        bases: Mapping[str, Corpus],
        embed: Embed | None = None,
        lease_seconds: float = 3600.0,
        count_tokens: CountTokens = count_words,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.bases = bases
        self.embed = embed
        self.lease_seconds = lease_seconds
        self.count_tokens = count_tokens
        self.clock = clock
        self._live: OrderedDict[str, Trial] = OrderedDict()  # the longest unused first
        self._opened = self._closed = self._expired = self._peak = 0
        self._past = Growth()

    def open(self, namespace: str, request_id: str | None = None) -> Trial:
        """Open a trial of a base namespace; the same request gets the same trial again.

        The base is the one of that name, or of the part before `-qa`: the trials of
        `conv-26-qa159-4f01449a` are over the base `conv-26`.
        """
        self.expire()
        return self._lease(self._base(namespace), namespace, request_id or uuid.uuid4().hex)

    @contextmanager
    def trial(self, namespace: str, request_id: str | None = None) -> Iterator[Trial]:
        """Open a trial and close it, however the block ends."""
        trial = self.open(namespace, request_id)
        try:
            yield trial
        finally:
            trial.close()

    def get(self, namespace: str) -> Trial | None:
        """Return the live trial of this name."""
        return self._live.get(namespace)

    def close(self, namespace: str) -> bool:
        """Close a trial by name; False if no such trial is open."""
        trial = self._live.get(namespace)
        if trial is not None:
            trial.close()
        return trial is not None

    def close_all(self) -> None:
        """Close every trial."""
        for trial in list(self._live.values()):
            trial.close()

    def expire(self) -> int:
        """Close the trials that nobody has used for the length of a lease; return how many."""
        latest, expired = self.clock() - self.lease_seconds, 0
        while self._live and (oldest := next(iter(self._live.values()))).last_used <= latest:
            self._end(oldest, f"nobody used it for {self.lease_seconds:g} seconds")
            expired += 1
        self._expired += expired
        return expired

    def statistics(self) -> Statistics:
        """Close what has expired, and count."""
        self.expire()
        growth = Growth()
        for trial in self._live.values():
            growth += trial.growth(self.count_tokens)
        return Statistics(
            self._opened,
            self._closed,
            self._expired,
            len(self._live),
            self._peak,
            growth,
            self._past + growth,
            sum(corpus.nbytes for corpus in self.bases.values()),
        )

    def _base(self, namespace: str) -> Corpus:
        for name in (namespace, namespace.partition("-qa")[0]):
            if name in self.bases:
                return self.bases[name]
        known = ", ".join(list(self.bases)[:5]) or "none"
        raise UserError(
            f"there are no base memories for {namespace!r}",
            f"load the memories of that conversation; loaded are: {known}",
        )

    def _lease(self, corpus: Corpus, namespace: str, request: str) -> Trial:
        # Two requests may start alike. A trial is never shared, so the later one's name grows.
        tail, size = request, REQUEST
        while (known := self._live.get(name := f"{namespace}-{tail[:size]}")) is not None:
            if known.request == request:
                self._renew(known)
                return known
            size += 1
            if size > len(tail):
                tail += "+"
        trial = self._live[name] = Trial(self, corpus, name, request)
        self._opened += 1
        self._peak = max(self._peak, len(self._live))
        return trial

    def _renew(self, trial: Trial) -> None:
        trial.last_used = self.clock()
        self._live.move_to_end(trial.namespace)

    def _end(self, trial: Trial, why: str) -> None:
        try:
            grown = trial.growth(self.count_tokens)
            self._past += Growth(grown.created, grown.updated, grown.deleted, grown.tokens)
        finally:
            del self._live[trial.namespace]
            self._closed += 1
            trial._drop(why)

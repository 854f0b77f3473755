"""Trials on a cluster: bases shared by a node, edits in the worker, and a word to the broker.

Who is notified of trials is an argument; a notification never waits.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from recollect.agents.base import Agent
from recollect.config.overlay import to_table
from recollect.config.train import EmbedConfig, TrainConfig
from recollect.engines.verl.worker.bases import LazyBases
from recollect.memory.changes import Growth
from recollect.memory.corpus import Corpus
from recollect.memory.leases import MemoryStoreManager, Trial
from recollect.memory.store import Embed
from recollect.tasks.base import RememberedFamily
from recollect.tasks.files.fingerprint import fingerprint
from recollect.train.wiring import make_agent, memories

WORD = 60.0
"""Seconds between two words of a worker that has nothing else to tell."""


class LeaseListener(Protocol):
    """Hears of trials; no call may block."""

    def opened(self, trial: str, namespace: str) -> None:
        """A trial was opened."""

    def closed(self, trial: str, namespace: str, state: dict[str, Any], growth: Growth) -> None:
        """A trial ended."""

    def alive(self) -> None:
        """Somebody works on a trial."""


class BrokeredStores(MemoryStoreManager):
    """A store manager that tells of every trial it opens and closes."""

    def __init__(
        self, bases: Mapping[str, Corpus], listener: LeaseListener, embed: Embed | None = None
    ) -> None:
        super().__init__(bases, embed)
        self.listener = listener
        self._asked: dict[str, str] = {}
        self._word = time.monotonic()

    def _lease(self, corpus: Corpus, namespace: str, request: str) -> Trial:
        before = self._opened
        trial = super()._lease(corpus, namespace, request)
        if self._opened > before:
            self._asked[trial.namespace] = namespace
            self.listener.opened(trial.namespace, namespace)
        return trial

    def _renew(self, trial: Trial) -> None:
        super()._renew(trial)
        if time.monotonic() - self._word >= WORD:
            self._word = time.monotonic()
            self.listener.alive()

    def _end(self, trial: Trial, why: str) -> None:
        state, growth = trial.snapshot(), trial.growth(self.count_tokens)
        super()._end(trial, why)
        self.listener.closed(trial.namespace, self._asked.pop(trial.namespace), state, growth)


class BrokerLine:
    """Tell the cluster's broker, without waiting for it."""

    def __init__(self, broker: Any, run: str) -> None:
        self.broker, self.run = broker, run
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"

    def opened(self, trial: str, namespace: str) -> None:
        """Register a trial."""
        self.broker.open.remote(self.run, trial, namespace, self.owner)

    def closed(self, trial: str, namespace: str, state: dict[str, Any], growth: Growth) -> None:
        """Hand in its final state."""
        self.broker.close.remote(self.run, trial, namespace, state, growth)

    def alive(self) -> None:
        """Renew this worker's leases."""
        self.broker.hear.remote(self.run, self.owner)


def broker_line(run: str) -> BrokerLine:
    """Find or start the cluster's broker, and speak for a run."""
    from recollect.engines.verl.worker.broker import open_broker

    return BrokerLine(open_broker(), run)


def cluster_agent(config: TrainConfig, tell: Callable[[], LeaseListener]) -> Agent:
    """Make the agent of a run; one that edits memories shares their bases with its node."""

    def brokered(tasks: RememberedFamily, embed: EmbedConfig) -> BrokeredStores:
        make, embedder = memories(tasks, embed)
        key = json.dumps([to_table(tasks), fingerprint(tasks), to_table(embed)])
        return BrokeredStores(LazyBases(make, key), tell(), embedder)

    return make_agent(config, brokered)

"""MemoryBroker: the registries of all runs of a cluster, in one named Ray actor.

It outlives the run that started it: a second one in the same cluster finds it by name and has a
registry of its own. `stores` reports to it from the workers; anybody may ask it how a trial ended:

    broker = find_broker()
    ray.get(broker.final.remote("RUN", "conv-26-qa159-4f01449a-0d3e1b7a"))
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from typing import Any

import ray

from recollect import __version__
from recollect.engines.verl.worker.registry import Final, Registry
from recollect.memory.changes import Growth

NAME = "MemoryBroker"
NAMESPACE = "recollect"
RUNS = 16
"""Runs that are remembered: the latest ones that were heard of."""


class MemoryBroker:
    """Registries by run. Every method is one call from another process."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, Registry] = OrderedDict()
        self._keys: dict[str, dict[str, str]] = {}

    def keep_keys(self, run: str, keys: dict[str, str]) -> None:
        """Keep the keys of a run's servers for its workers, until the run ends."""
        self._keys[run] = keys

    def keys(self, run: str) -> dict[str, str]:
        """Return the keys of a run's servers, by environment variable."""
        return self._keys.get(run, {})

    def version(self) -> str:
        """Return whose code this is."""
        return __version__

    def open(self, run: str, trial: str, namespace: str, owner: str) -> bool:
        """Register a trial of a run."""
        return self._of(run).open(trial, namespace, owner)

    def hear(self, run: str, owner: str) -> None:
        """Renew the leases of a worker."""
        self._of(run).hear(owner)

    def close(
        self, run: str, trial: str, namespace: str, state: dict[str, Any], growth: Growth
    ) -> None:
        """End a trial and keep its final state."""
        self._of(run).close(trial, namespace, state, growth)

    def leave(self, run: str, owner: str) -> int:
        """End the trials of a worker that is gone."""
        return self._of(run).leave(owner)

    def end(self, run: str) -> int:
        """End the trials of all workers of a run that is over, and forget its keys."""
        self._keys.pop(run, None)
        return self._runs[run].end() if run in self._runs else 0

    def final(self, run: str, trial: str) -> Final | None:
        """Return how a trial ended."""
        return self._runs[run].final(trial) if run in self._runs else None

    def finals(self, run: str, namespace: str) -> list[Final]:
        """Return how the latest trials of a namespace ended."""
        return self._runs[run].finals(namespace) if run in self._runs else []

    def live(self, run: str) -> dict[str, str]:
        """Return the open trials of a run and who has them."""
        return self._runs[run].live() if run in self._runs else {}

    def statistics(self, run: str) -> dict[str, float]:
        """Count the trials of a run."""
        return self._of(run).statistics()

    def runs(self) -> list[str]:
        """Name the runs that are known."""
        return sorted(self._runs)

    def forget(self, run: str) -> bool:
        """Drop all that is known of a run."""
        return self._runs.pop(run, None) is not None

    def _of(self, run: str) -> Registry:
        registry = self._runs.setdefault(run, Registry())
        self._runs.move_to_end(run)
        while len(self._runs) > RUNS:
            self._runs.popitem(last=False)
        return registry


def open_broker() -> Any:
    """Find the cluster's broker, or start it. One of an older version is replaced."""
    broker = _start()
    if ray.get(broker.version.remote()) == __version__:
        return broker
    ray.kill(broker)
    # Its name is free a moment later; until then the old one would be found under it.
    while (new := _start())._actor_id == broker._actor_id:
        time.sleep(0.05)
    return new


def end_run(run: str) -> int:
    """End what a run's workers left open, if anybody keeps a broker; return how many trials."""
    try:
        find_broker()
    except ValueError:
        return 0
    ended: int = ray.get(open_broker().end.remote(run))
    return ended


def take_keys(run: str) -> None:
    """Put the keys of a run's servers into this worker's environment."""
    try:
        broker = find_broker()
    except ValueError:  # none was needed so far
        return
    os.environ.update(ray.get(broker.keys.remote(run)))


def find_broker() -> Any:
    """Return the broker of the cluster that this process is connected to."""
    return ray.get_actor(NAME, namespace=NAMESPACE)


def _start() -> Any:
    return (
        ray.remote(MemoryBroker)
        .options(
            name=NAME,
            namespace=NAMESPACE,
            lifetime="detached",  # the run that starts it may not be the last one
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
        )
        .remote()
    )

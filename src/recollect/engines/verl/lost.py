"""A node that is lost ends the run on it: verl's processes would wait for one another for ever.

The command's own process watches the nodes that were there at the start. When one of them is gone
it ends verl's task runner, with which all of the run's processes end.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import ray
from ray.exceptions import ActorDiedError, NodeDiedError, RayError, WorkerCrashedError

from recollect.errors import UserError
from recollect.foreign import one_line

PERIOD = 1.0
"""Seconds between two looks."""
NOTICED = 45.0
"""Seconds in which Ray has noticed that a node is gone."""
RESUME = "the same command resumes from the last checkpoint"


class WatchedRunner:
    """Start verl's task runner, and watch the nodes from then on."""

    def __init__(self, runner: Any) -> None:
        self._class = runner
        self._runner: Any = None
        self._nodes: dict[str, str] = {}
        self._lost: list[str] = []
        self._over = threading.Event()

    def remote(self) -> Any:
        """Start the runner; verl calls this as soon as it is connected to Ray."""
        self._nodes = {node["NodeID"]: _name(node) for node in ray.nodes() if node["Alive"]}
        self._runner = self._class.remote()
        threading.Thread(target=self._watch, daemon=True).start()
        return self._runner

    def close(self) -> None:
        """Stop watching."""
        self._over.set()

    def explain(self, error: RayError) -> UserError | None:
        """Say what was lost, if that is why a run ended; None if the run itself failed."""
        deadline = time.monotonic() + (NOTICED if len(self._nodes) > 1 else 0.0)
        while not self._lost and time.monotonic() < deadline:
            self._look()
            time.sleep(PERIOD / 4)  # what the others say may arrive before Ray notices
        if self._lost:
            names = " and ".join(self._lost)
            lost = "nodes" if self._lost[1:] else "node"
            return UserError(
                f"the run lost the {lost} {names}, and verl cannot continue without",
                f"start Ray there again (ray start --address ...), or set trainer.nnodes; {RESUME}",
            )
        if died := _find_death(error):
            return UserError(
                f"a worker of the run died: {one_line(str(died), 300)}",
                f"see whether its node ran out of memory; {RESUME}",
            )
        return None

    def _watch(self) -> None:
        while not self._over.wait(PERIOD):
            if self._look():
                ray.kill(self._runner)
                return

    def _look(self) -> bool:
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        self._lost = [name for key, name in self._nodes.items() if key not in alive]
        return bool(self._lost)


def _name(node: dict[str, Any]) -> str:
    return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"


def _find_death(error: BaseException | None) -> BaseException | None:
    """Find a process that was killed in what Ray raised; one that never started is another case."""
    while error is not None:
        if isinstance(error, WorkerCrashedError | NodeDiedError):
            return error
        if isinstance(error, ActorDiedError) and not error.actor_init_failed:
            return error
        error = getattr(error, "cause", None) or error.__cause__
    return None

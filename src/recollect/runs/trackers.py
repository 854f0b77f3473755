"""Trackers: where metrics go beside metrics.jsonl, which stays the truth.

Each class imports its own package when it is opened, so that none is needed to train.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from recollect.errors import UserError
from recollect.files import plain
from recollect.foreign import redact, storable, storable_values

PROJECT = "recollect"


class Tracker(Protocol):
    """Somewhere metrics are shown."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of one step."""

    def close(self) -> None:
        """Send what is left and end."""


class TensorBoard:
    """Event files in the run folder; read them with `tensorboard --logdir`."""

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], start: int) -> None:
        """Open an event file; what was logged after step `start` is void."""
        writer = _import("tensorboard.summary.writer.event_file_writer", "tensorboard")
        self._event = _import("tensorboard.compat.proto.event_pb2", "tensorboard")
        self._summary = _import("tensorboard.compat.proto.summary_pb2", "tensorboard")
        self._writer = writer.EventFileWriter(str(folder / "tensorboard"))
        begin = self._event.SessionLog(status=self._event.SessionLog.START)
        self._add(start + 1, session_log=begin)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one event with all values."""
        values = [
            self._summary.Summary.Value(tag=name, simple_value=float(value))
            for name, value in metrics.items()
        ]
        self._add(step, summary=self._summary.Summary(value=values))

    def _add(self, step: int, **content: Any) -> None:
        self._writer.add_event(self._event.Event(wall_time=time.time(), step=step, **content))

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()


class Wandb:
    """Weights & Biases; a resumed run is another one in the same group."""

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], start: int) -> None:
        """Start a run."""
        self._run = _import("wandb").init(
            project=PROJECT, name=name, group=name, dir=str(folder), config=dict(config)
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of one step."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """End the run."""
        self._run.finish()


class SwanLab:
    """SwanLab; a resumed run is another one in the same group."""

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], start: int) -> None:
        """Start an experiment; SwanLab wants its folder to exist."""
        (folder / "swanlab").mkdir(exist_ok=True)
        self._swanlab = _import("swanlab")
        self._swanlab.init(
            project=PROJECT,
            experiment_name=name,
            group=name,
            logdir=str(folder / "swanlab"),
            config=dict(config),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of one step."""
        self._swanlab.log(dict(metrics), step=step)

    def close(self) -> None:
        """End the experiment."""
        self._swanlab.finish()


class Trackio:
    """Trackio; a resumed run is another one in the same group."""

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], start: int) -> None:
        """Start a run."""
        self._run = _import("trackio").init(
            project=PROJECT, name=name, group=name, config=dict(config)
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of one step."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """End the run."""
        self._run.finish()


Opener = Callable[[Path, str, Mapping[str, Any], int], Tracker]
KNOWN: dict[str, Opener] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "swanlab": SwanLab,
    "trackio": Trackio,
}


def open_trackers(
    names: Sequence[str],
    folder: Path,
    run_name: str,
    config: Mapping[str, Any],
    *,
    start: int = 0,
) -> list[Tracker]:
    """Open the named trackers for a run that goes on after step `start`."""
    for name in names:
        if name not in KNOWN:
            raise UserError(f"there is no tracker {name!r}", f"choose from {', '.join(KNOWN)}")
    trackers: list[Tracker] = []
    for name in dict.fromkeys(names):
        try:
            trackers.append(KNOWN[name](folder, storable(run_name), _sent(config), start))
        except Exception as error:
            for opened in trackers:
                opened.close()
            if isinstance(error, UserError):
                raise
            # A service that wants a login or a network says so in its own words.
            raise UserError(
                f"the tracker {name} could not start: {error}",
                f"set up {name} (is it logged in, is it online?), or leave it out",
            ) from error
    return trackers


def _sent(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings fit to leave this machine: no keys, and nothing that UTF-8 cannot hold."""
    sent: dict[str, Any] = json.loads(redact(json.dumps(storable_values(config), default=plain)))
    return sent


def _import(module: str, package: str = "") -> Any:
    package = package or module
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(
            f"the tracker {package} is not installed ({error})", f"pip install {package}"
        ) from error

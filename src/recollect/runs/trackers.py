"""Trackers: where metrics go beside metrics.jsonl, which stays the truth.

Which run a tracker knows us by, and the last step it was sent, are kept in the run folder: a run
that is resumed continues there, and no step is sent twice.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from recollect import files as disk
from recollect.errors import UserError
from recollect.files import read_file
from recollect.foreign import one_line, redact, shown, storable_values
from recollect.runs.episodes import memory_states
from recollect.runs.tracker_services import (
    SERVICES,
    Columns,
    Rows,
    Tracked,
    TrackerConfig,
    TrackerService,
    import_tracker,
)
from recollect.types import Episode

FILE = "trackers.json"
ROLLOUTS = ("task", "rollout", "reward", "questions", "expected", "answers", "memory", "failure")
_CELL = 8000
"""Characters of a text in a table."""


@dataclass
class Tracker:
    """One service that shows a run."""

    name: str
    service: TrackerService
    last: int
    """The last step it was sent."""
    seen: str = ""
    """The hash of what `log_result` sent last."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of a step, unless it was sent before the run was resumed."""
        if step > self.last:
            self.service.log(step, metrics)
            self.last = step


@dataclass
class Trackers:
    """All services that show a run. One that fails is reported once, and left out from then on."""

    folder: Path
    config: TrackerConfig
    opened: list[Tracker] = field(default_factory=list)
    note: Callable[[str], None] = lambda _text: None
    """Called with what a person should know."""

    def log(
        self, step: int, metrics: Mapping[str, float], episodes: Sequence[Episode] = ()
    ) -> None:
        """Send the metrics of a step, and some of its episodes with what they remembered."""
        metrics = storable_values(metrics)
        rows = [rollout_row(episode) for episode in episodes[: self.config.rollouts]]

        def send(tracker: Tracker) -> None:
            if rows and step > tracker.last:
                tracker.service.table(step, "rollouts", ROLLOUTS, rows)
            tracker.log(step, metrics)

        self._each(send)

    def log_result(
        self,
        metrics: Mapping[str, float],
        tables: Mapping[str, tuple[Columns, Rows]],
    ) -> None:
        """Send what an evaluation found, unless it is what was sent the last time."""
        seen = sha256(json.dumps([metrics, tables], default=str).encode()).hexdigest()

        def send(tracker: Tracker) -> None:
            if tracker.seen == seen:
                return
            step = tracker.last + 1
            for name, (columns, rows) in tables.items():
                tracker.service.table(step, name, columns, rows)
            tracker.log(step, metrics)
            tracker.seen = seen

        self._each(send)

    def close(self, ok: bool) -> None:
        """Send what is left and end."""
        for tracker in self.opened:
            try:
                tracker.service.close(ok)
            except Exception as error:  # the package's own failure must not hide the run's
                self.note(f"the tracker {tracker.name} did not close: {one_line(str(error), 300)}")
        self.opened = []

    def _each(self, send: Callable[[Tracker], None]) -> None:
        for tracker in list(self.opened):
            try:
                send(tracker)
            except Exception as error:  # such as a network that is gone: the run is worth more
                self.opened.remove(tracker)
                why = one_line(f"{type(error).__name__}: {error}", 300)
                self.note(
                    f"the tracker {tracker.name} failed and is left out from now on: {why};"
                    " metrics.jsonl has everything"
                )
        if self.opened:
            self.save()

    def save(self) -> None:
        """Remember the runs and their last steps."""
        known = _known(self.folder) | {
            t.name: {"id": t.service.id, "step": t.last, "seen": t.seen} for t in self.opened
        }
        disk.write_text(self.folder / FILE, json.dumps(known, indent=2) + "\n")


def check_trackers(names: Sequence[str]) -> None:
    """Refuse names of no tracker, and trackers that are not installed."""
    for name in names:
        if name not in SERVICES:
            raise UserError(f"there is no tracker {name!r}", f"choose from {', '.join(SERVICES)}")
        import_tracker(name)


@contextmanager
def open_trackers(
    names: Sequence[str],
    folder: Path,
    settings: Mapping[str, Any],
    config: TrackerConfig = TrackerConfig(),
    *,
    start: int = -1,
) -> Iterator[Trackers]:
    """Open the named services for a run in a folder that continues after step `start`."""
    check_trackers(names)
    sent = _sent(settings)
    trackers = Trackers(folder, config)
    try:
        for name in dict.fromkeys(names):
            trackers.opened.append(_open(name, folder, sent, config, start))
        if trackers.opened:
            trackers.save()
        yield trackers
    except BaseException:
        trackers.close(ok=False)
        raise
    trackers.close(ok=True)


def _open(
    name: str, folder: Path, settings: Mapping[str, Any], config: TrackerConfig, start: int
) -> Tracker:
    known = _known(folder).get(name)
    id = known["id"] if known else _new_id()
    run = storable_values(config.run or folder.resolve().name)
    try:
        about = Tracked(folder, run, id, known is not None, start, settings, config)
        service = SERVICES[name](about)
    except UserError:
        raise
    except Exception as error:  # a service that wants a login or a network says so in its own words
        raise UserError(
            f"the tracker {name} could not start: {error}",
            f"set up {name} (is it logged in, is it online?), or leave it out",
        ) from error
    if known is None or service.rewinds:
        return Tracker(name, service, start)
    return Tracker(name, service, int(known["step"]), known["seen"])


def tracker_environment(
    names: Sequence[str], folder: Path, config: TrackerConfig
) -> dict[str, str]:
    """Return the variables by which wandb and SwanLab file and resume a run that others open."""
    given: dict[str, str] = {}
    for name, group in (("wandb", "RUN_GROUP"), ("swanlab", "GROUP")):
        if name in names:
            known = _known(folder)
            run = known.setdefault(name, {"id": _new_id(), "step": -1, "seen": ""})
            disk.write_text(folder / FILE, json.dumps(known, indent=2) + "\n")
            entity = "ENTITY" if name == "wandb" else "WORKSPACE"
            own = {"RUN_ID": run["id"], "RESUME": "allow", entity: config.entity}
            own |= {group: config.group, "TAGS": ",".join(config.tags)}
            given |= {f"{name.upper()}_{key}": value for key, value in own.items() if value}
    return given


def _new_id() -> str:
    return uuid.uuid4().hex[:21]  # as long as SwanLab wants it


def _sent(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings fit to leave this machine: no keys, and nothing that UTF-8 cannot hold."""
    sent: dict[str, Any] = json.loads(redact(json.dumps(dict(settings), default=str)))
    return storable_values(sent)


def _known(folder: Path) -> dict[str, Any]:
    """Return the runs that the trackers of a folder know, by tracker."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        known = json.loads(read_file(path))
        return {name: {"id": str(k["id"]), "step": int(k["step"]), "seen": str(k["seen"])}
                for name, k in known.items()}  # fmt: skip
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{path} is damaged ({error!r})",
            "delete it: the trackers then show the rest as a new run",
        ) from None


def rollout_row(episode: Episode) -> tuple[Any, ...]:
    """Return an episode as a row of the table of rollouts."""
    asked = episode.task.questions
    states = (f"{label}: {text}" for label, text in memory_states(episode).items())
    failure = episode.failure
    return (
        shown(episode.task.id),
        episode.rollout,
        episode.reward,
        _cell(question.text for question in asked),
        _cell(" or ".join(question.answers) for question in asked),
        _cell(episode.answers),
        _cell(states),
        _cell([f"{failure.boundary}: {failure.kind}: {failure.message}"] if failure else []),
    )


def _cell(texts: Iterator[str] | Sequence[str]) -> str:
    text = shown("\n".join(texts))
    return text if len(text) <= _CELL else f"{text[: _CELL // 2]}\n…\n{text[-_CELL // 2 :]}"

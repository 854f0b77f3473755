"""One run's folder, and how a run continues after a kill. Knows nothing of models or torch.

    config.json    metrics.jsonl    episodes/train-000010.jsonl.gz    checkpoints/step-000010/

Whatever belongs to step s is logged before checkpoint s is saved. Continuing from s cuts everything
later away, so that a killed run ends with the same files, times aside, as one never killed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from recollect import files as disk
from recollect.errors import UserError
from recollect.files import Lines
from recollect.foreign import storable
from recollect.runs import checkpoints
from recollect.runs.checkpoints import Checkpoint, find_checkpoint, verify
from recollect.runs.episodes import Decode, read_episodes, write_episodes
from recollect.types import Episode

__all__ = [
    "Checkpoint",
    "Run",
    "find_checkpoint",
    "read_episodes",
    "read_metrics",
    "verify",
    "without_times",
]

METRICS = "metrics.jsonl"
_LINE = "restore the file from a copy, or delete that line to do without its numbers"
_CONFIG = "restore it from a copy, or choose another run folder"
TIME = "time/"
"""Metrics under this prefix are measured, not computed: two equal runs differ in them."""


@dataclass
class Run:
    """A run's folder, held by one process at a time. Made by `Run.open`."""

    folder: Path
    keep: int | None = 2
    """Checkpoints kept; None keeps all."""
    checkpoint: Checkpoint | None = None
    """What this run continues from; None for a fresh start."""
    notes: list[str] = field(default_factory=list)
    """What a person should know, such as a damaged checkpoint; the display shows it."""
    _lock: IO[bytes] | None = None
    _metrics: Lines | None = None
    _saved: int = -1

    @classmethod
    def open(
        cls,
        folder: Path,
        config: Mapping[str, Any],
        resume: str | Path = "auto",
        *,
        keep: int | None = 2,
        may_change: Collection[str] = (),
        at: int | None = None,
    ) -> Run:
        """Start a run in `folder`, or continue the one there.

        `resume` is "auto" (continue a run if there is one), "never", or the path of a checkpoint.
        `may_change` names settings (dotted) that may differ from those the run was started with.
        `at` is the step to continue after, 0 for a fresh start, where another engine keeps the
        checkpoints.
        """
        if keep is not None and keep < 1:
            raise UserError(f"cannot keep {keep} checkpoints", "keep at least 1")
        run = cls(Path(folder), keep)
        with disk.refusals(run.folder):
            run._refuse_foreign()
            disk.make_folder(run.folder, private=True)
            run._lock = disk.lock(run.folder)
            try:
                run._refuse_other(config, resume, may_change)
                run._start(config, resume, at)
                run.folder = run.folder.absolute()  # an agent may change the current one
            except BaseException:
                run.close()
                raise
        return run

    def _refuse_foreign(self) -> None:
        if storable(name := str(self.folder.absolute())) != name:
            raise UserError(  # tokenizers cannot write there, which shows at the end of a run
                f"the name {name!r} holds bytes that are no text in UTF-8",
                "choose a run folder with another name",
            )
        if self.folder.exists() and not self.folder.is_dir():
            raise UserError(f"{self.folder} is a file", "choose another run folder")
        if self.folder.is_dir() and not (self.folder / "config.json").exists():
            names = sorted(p.name for p in self.folder.iterdir() if not p.name.startswith("."))
            # A kill may come before config.json is written; the rest is what a cluster's run needs.
            ours = {"checkpoints", "code", "episodes", "partner.json", "settings.json"}
            ours |= {"partner.server.log", "start.jsonl", "tasks", "train.parquet", "test.parquet"}
            if foreign := [name for name in names if name not in ours]:
                raise UserError(
                    f"{self.folder} is not empty and holds no run (it has {foreign[0]})",
                    "choose a new or empty run folder",
                )

    def _refuse_other(
        self, config: Mapping[str, Any], resume: str | Path, may_change: Collection[str]
    ) -> None:
        path = self.folder / "config.json"
        if not path.exists():
            return
        if resume == "never":
            raise UserError(
                f"{self.folder} already holds a run, and nothing is ever overwritten",
                f"continue it (resume auto), choose another run folder, or delete {self.folder}",
            )
        lines = _differences(disk.read_json(path, _CONFIG), _as_json(config), may_change)
        if lines:
            more = [f"and {len(lines) - 8} more"] if len(lines) > 8 else []
            raise UserError(
                "\n  ".join([f"{self.folder} was started with other settings:", *lines[:8], *more]),
                "give the values it was started with, or choose another run folder",
            )

    def _start(self, config: Mapping[str, Any], resume: str | Path, at: int | None) -> None:
        for part in (self._checkpoints, self.folder / "episodes"):
            part.mkdir(exist_ok=True)
        for part in (self.folder, self._checkpoints, self.folder / "episodes"):
            for leftover in part.glob(f"{disk.TEMPORARY}*"):
                disk.remove(leftover)
        self.checkpoint = self._origin(resume) if at is None else None
        self._saved = self.checkpoint.step if self.checkpoint else (at or 0) - (not at)
        self._cut(self._saved)
        self.write_text("config.json", json.dumps(_as_json(config), indent=2) + "\n")
        self._metrics = Lines(self.folder / METRICS)

    @property
    def _checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def _origin(self, resume: str | Path) -> Checkpoint | None:
        """Find what to continue from; a checkpoint of another run becomes our first."""
        if str(resume) in ("auto", "never"):
            latest = self.latest()
            if latest is None and checkpoints.list_checkpoints(self._checkpoints):
                raise UserError(
                    "\n  ".join([f"no checkpoint in {self.folder} is whole:", *self.notes]),
                    "restore one from a copy, or start again in another run folder",
                )
            return latest
        given = find_checkpoint(Path(resume))
        if given.path.parent.resolve() == self._checkpoints.resolve():
            return given
        if checkpoints.list_checkpoints(self._checkpoints):
            raise UserError(
                f"{self.folder} has checkpoints of its own, so it cannot start from {resume}",
                "continue it (resume auto), or choose another run folder",
            )
        # A copy makes the folder whole: a kill before its own first checkpoint loses nothing.
        return checkpoints.copy_checkpoint(given, self._checkpoints)

    def _cut(self, step: int) -> None:
        """Take away whatever is later than `step`: it will be made again."""
        for later, path in checkpoints.list_checkpoints(self._checkpoints):
            # Only damage, or a path to an older checkpoint, leaves any beyond what we go on from.
            if later > step:
                aside = path.with_name(f"aside-{path.name}")
                disk.remove(aside)
                path.rename(aside)
                self.notes.append(f"the run continues from step {step}; {path} is now {aside.name}")
        for path in (self.folder / "episodes").iterdir():
            found = re.search(r"-(\d+)\.jsonl\.gz$", path.name)
            if found and int(found[1]) > step:
                disk.remove(path)
        self._cut_metrics(step)

    def _cut_metrics(self, step: int) -> None:
        path = self.folder / METRICS
        if not path.exists():
            return
        if not path.is_file():
            raise UserError(f"{path} is not a file", _LINE)
        lines = Lines(path)  # takes away a line that a kill cut short
        lines.close()
        records = list(read_records(self.folder))
        last = records[-1]["step"] if records else 0
        if last < step and (records or lines.torn):
            why = f"line {len(records) + 1} was cut short" if lines.torn else "lines are missing"
            self.notes.append(f"{path}, {why}: the metrics after step {last} are lost")
        kept = [record for record in records if record["step"] <= step]
        if len(kept) < len(records):
            self.write_text(METRICS, "".join(_line(record) + "\n" for record in kept))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one line to metrics.jsonl; what is not finite is written as null."""
        self._check_open(step)
        record = {"step": step, **{name: _number(value) for name, value in metrics.items()}}
        assert self._metrics is not None
        self._metrics.write(_line(record))

    def write_episodes(
        self, step: int, name: str, episodes: Iterable[Episode], decode: Decode | None = None
    ) -> Path:
        """Store episodes under `name` ("train", "val"); `decode` adds their texts."""
        self._check_open(step)
        path = self.folder / "episodes" / f"{name}-{step:06d}.jsonl.gz"
        with disk.replacing(path) as temporary:
            write_episodes(temporary, episodes, decode)
        return path

    def write_text(self, name: str, text: str) -> Path:
        """Put a text file into the folder, replacing an older one in one move."""
        path = self.folder / name
        disk.write_text(path, text)
        return path

    def save(self, step: int, write: Callable[[Path], None]) -> Checkpoint:
        """Let `write` fill a folder and make it checkpoint `step`; then drop the oldest."""
        if step == self._saved:  # nothing has happened since it was saved or gone on from
            return Checkpoint(self._checkpoints / f"step-{step:06d}", step)
        self._check_open(step)
        with disk.refusals(self.folder):
            assert self._metrics is not None
            self._metrics.sync()
            saved = checkpoints.write_checkpoint(self._checkpoints, step, write)
            self._saved = step
            listed = checkpoints.list_checkpoints(self._checkpoints)
            for _step, oldest in listed[: -self.keep] if self.keep else []:
                disk.remove(oldest)
        return saved

    def latest(self) -> Checkpoint | None:
        """Return the newest whole checkpoint; note every damaged one that is passed over."""
        latest, wrong = checkpoints.latest_checkpoint(self._checkpoints)
        self.notes += wrong
        return latest

    def close(self) -> None:
        """Release the folder."""
        metrics, held = self._metrics, self._lock
        self._metrics = self._lock = None
        try:
            if metrics is not None:
                metrics.close()
        finally:
            if held is not None:
                held.close()

    def _check_open(self, step: int) -> None:
        if self._metrics is None:
            raise ValueError(f"the run in {self.folder} is closed")
        if step <= self._saved:
            # A kill right here would lose it, because the run goes on after the checkpoint.
            raise ValueError(f"step {step} comes after checkpoint {self._saved} was saved")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the records of a run's metrics.jsonl; null comes back as NaN."""
    if not (folder / METRICS).exists():
        raise UserError(f"{folder} holds no {METRICS}", "name a run folder")
    return [
        {name: math.nan if value is None else value for name, value in record.items()}
        for record in read_records(folder)
    ]


def without_times(record: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what differs between two equal runs."""
    return {name: value for name, value in record.items() if not name.startswith(TIME)}


def read_records(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of metrics.jsonl as they were written; a damaged line is an error."""
    path = folder / METRICS
    for number, record in disk.read_lines(path, _LINE):
        if not isinstance(record, dict) or not _is_record(record):
            raise UserError(
                f"{path}, line {number} is damaged: it is not a record of a step", _LINE
            )
        yield record


def _is_record(record: dict[str, Any]) -> bool:
    step, values = record.get("step"), record.values()
    try:
        known = all(v is None or (isinstance(v, int | float) and math.isfinite(v)) for v in values)
    except OverflowError:  # an integer of hundreds of digits
        return False
    return known and isinstance(step, int) and not isinstance(step, bool)


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, sort_keys=True)


def _number(value: float) -> float | int | None:
    if isinstance(value, (int, np.integer)):
        return int(value)
    return float(value) if math.isfinite(value) else None


def _as_json(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config as it will be read back: tuples are lists, paths are texts."""
    read_back: dict[str, Any] = json.loads(json.dumps(dict(config), default=disk.plain))
    return read_back


def _differences(
    old: Mapping[str, Any], new: Mapping[str, Any], may_change: Collection[str]
) -> list[str]:
    """Say which settings differ, apart from those that may."""
    then, now = _flat(old), _flat(new)
    return [
        f"{key}: {then.get(key, '(not set)')} then, {now.get(key, '(not set)')} now"
        for key in sorted({*then, *now})
        if then.get(key) != now.get(key)
        and not any(key == name or key.startswith(f"{name}.") for name in may_change)
    ]


def _flat(config: Mapping[str, Any]) -> dict[str, str]:
    """Map dotted names to values as JSON, so that a missing setting differs from a null one."""
    return {name: json.dumps(value) for name, value in disk.dotted(config)}

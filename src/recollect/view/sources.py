"""Folders to look at: training runs and evaluations, read as they grow.

Nothing in a folder is ever written or run. A folder's own modules are imported only if `trust`.
"""

from __future__ import annotations

import gzip
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from recollect.errors import UserError
from recollect.files import loads, read_json
from recollect.foreign import one_line
from recollect.runs.shape import wrong_episode, wrong_head
from recollect.view.rows import NAME, Row, rows_of_run, run_heads
from recollect.view.stored import Stored, of_run

_DAMAGE = (OSError, EOFError, ValueError, KeyError, TypeError, IndexError, AttributeError)
CONFIG = "config.json"


class Source(Protocol):
    """A folder of episodes."""

    id: str
    kind: str
    folder: Path
    rows: list[Row]
    notes: list[str]

    @property
    def name(self) -> str:
        """What people call it."""

    def group(self, n: int) -> list[int]:
        """Return the episodes of the same task, this one included."""

    def refresh(self) -> None:
        """Read what has come since the last time."""

    def stamp(self) -> str:
        """Return a text that changes when the folder does."""

    def stored(self, n: int) -> Stored:
        """Return an episode."""

    def config(self) -> dict[str, Any]:
        """Return the settings."""


@dataclass
class RunSource:
    """A training run's folder."""

    id: str
    folder: Path
    kind: str = "run"
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    generation: int = 0
    """Changes when rows that were listed are no more, as after a resume."""
    _places: list[tuple[Path, int]] = field(default_factory=list)
    _read: dict[Path, tuple[int, int]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _kept: tuple[Path, tuple[int, int], list[bytes]] | None = None

    @property
    def name(self) -> str:
        """What people call it."""
        return one_line(self.folder.resolve().name)

    def config(self) -> dict[str, Any]:
        """Return the settings."""
        return read_json(self.folder / CONFIG, "name the folder of a run")

    def files(self) -> list[Path]:
        """Return the files of episodes by step, held-out ones first."""
        found = [p for p in (self.folder / "episodes").glob("*.jsonl.gz") if NAME.fullmatch(p.name)]
        return sorted(found, key=_order)

    def stamp(self) -> str:
        """Return a text that changes when the folder does."""
        own = [self.folder / "metrics.jsonl", self.folder / "model" / CONFIG, *self.files()]
        return f"{self.generation}-{hash(tuple(map(_state, own))):x}"

    def refresh(self) -> None:
        """List the episodes of files that are new; start again if one is gone or was rewritten."""
        with self._lock:
            files = {path: _state(path) for path in self.files()}
            if any(files.get(path) != state for path, state in self._read.items()):
                self.rows, self._places, self._read, self._kept = [], [], {}, None
                self.generation += 1
            for path, state in files.items():
                if path not in self._read:
                    self._list(path)
                    self._read[path] = state

    def _list(self, path: Path) -> None:
        rows: list[Row] = []
        places: list[tuple[Path, int]] = []
        try:
            for line, head in run_heads(path):
                if found := wrong_head(head):
                    raise ValueError(f"line {line + 1}: {found}")
                rows += rows_of_run(len(self._places) + len(places), path, head)
                places.append((path, line))
        except _DAMAGE as error:
            self.notes.append(one_line(f"{path.name} cannot be read: {error}", 300))
        self.rows += rows
        self._places += places

    def record(self, n: int) -> dict[str, Any]:
        """Return an episode as it is stored."""
        with self._lock:
            if not 0 <= n < len(self._places):
                raise UserError(f"{self.name} has no episode {n}", "choose one from the list")
            path, line = self._places[n]
            state = _state(path)
            if self._kept is None or self._kept[:2] != (path, state):
                try:
                    with gzip.open(path, "rb") as file:
                        self._kept = (path, state, list(file))
                except _DAMAGE as error:
                    raise UserError(f"{path} cannot be read: {error}", "restore it") from error
            return checked(self._kept[2][line], wrong_episode, f"{path}, line {line + 1}")

    def place(self, n: int) -> tuple[str, int]:
        """Return the split and the step of an episode."""
        found = NAME.fullmatch(self._places[n][0].name)
        assert found is not None
        return found[1], int(found[2])

    def stored(self, n: int) -> Stored:
        """Return an episode."""
        return of_run(self.record(n), self.boxed)

    @property
    def boxed(self) -> bool:
        """Whether the run rewards only what is in a box."""
        reward = self.config().get("reward", {})
        return isinstance(reward, dict) and "boxed" in str(reward.get("metric", ""))

    def group(self, n: int) -> list[int]:
        """Return the episodes that training compared with one: its task, step and start."""
        with self._lock:
            own = next(row for row in self.rows if row["n"] == n)
            names = ("task", "step", "split", "forked")
            return sorted({r["n"] for r in self.rows if all(r[k] == own[k] for k in names)})


def checked(line: bytes, wrong: Callable[[Any], str], where: str) -> dict[str, Any]:
    """Return a stored episode; when it was listed, only the head of its line was read."""
    try:
        record = loads(line)
    except ValueError as error:
        raise UserError(f"{where} is damaged: {error}", "restore it from a copy") from error
    if found := wrong(record):
        raise UserError(f"{where} is damaged: {found}", "restore it from a copy")
    return dict(record)


def _order(path: Path) -> tuple[int, bool, str]:
    found = NAME.fullmatch(path.name)
    assert found is not None
    return int(found[2]), found[1] != "train", path.name


def _state(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError:
        return (0, 0)
    return stat.st_mtime_ns, stat.st_size


def open_sources(folders: Sequence[Path], trust: bool = False) -> list[Source]:
    """Open folders of runs and evaluations, and those inside of a folder of them."""
    found: dict[Path, Source] = {}
    for folder in folders:
        for path in _inside(folder):
            if path.resolve() not in found:
                found[path.resolve()] = _open(path, trust)
    names: Counter[str] = Counter()
    for source in found.values():
        base = "".join(c if c.isalnum() or c in "-_." else "-" for c in source.name)[:60]
        names[base] += 1
        source.id = base if names[base] == 1 else f"{base}~{names[base]}"
    return list(found.values())


def _inside(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder", "name the folder of a run or an evaluation")
    if (folder / CONFIG).is_file():
        return [folder]
    found = sorted({*folder.glob(f"*/{CONFIG}"), *folder.glob(f"*/*/{CONFIG}")})
    inside = [path.parent for path in found if path.parent.name not in ("model", "code")]
    if not inside:
        raise UserError(
            f"{folder} holds no run and no evaluation",
            "name a folder that `recollect train` or `recollect eval` wrote",
        )
    return inside


def _open(folder: Path, trust: bool) -> Source:
    from recollect.view.evaluations import EvaluationSource

    config = read_json(folder / CONFIG, "name the folder of a run or an evaluation")
    if "sets" in config and "identity" in config:
        return EvaluationSource("", folder, trust=trust)
    if "agent" in config and "tasks" in config:
        return RunSource("", folder)
    raise UserError(
        f"{folder / CONFIG} is neither that of a run nor that of an evaluation",
        "name a folder that `recollect train` or `recollect eval` wrote",
    )
